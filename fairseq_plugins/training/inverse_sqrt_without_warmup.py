"""Inverse square root schedule without warm-up: the learning rate falls from the first update on.

After n updates the rate is lr * sqrt(K / (K + n)), where K is ``--lr-decay-constant``: lr at first, lr / sqrt(2) after
K updates. The schedule of T-Fixup (Huang et al., ICML 2020, https://proceedings.mlr.press/v119/huang20f.html), with K =
4000; fairseq's own ``inverse_sqrt`` has n alone under the root, and so needs a warm-up.
"""

# No `from __future__ import annotations`: fairseq makes flags of the types of dataclass fields.

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from fairseq_plugins.errors import UserError


@dataclass
class InverseSqrtWithoutWarmupConfig(FairseqDataclass):
    """Flags of ``--lr-scheduler inverse_sqrt_without_warmup``."""

    lr_decay_constant: float = field(
        default=4000.0, metadata={"help": "K of lr * sqrt(K / (K + n)) after n updates: after K the rate is lr/sqrt(2)"}
    )
    lr: list[float] = II("optimization.lr")


@register_lr_scheduler("inverse_sqrt_without_warmup", dataclass=InverseSqrtWithoutWarmupConfig)
class InverseSqrtWithoutWarmup(FairseqLRScheduler):
    """``lr * sqrt(K / (K + n))``, without a state in checkpoints; a UserError if ``--lr`` is a list."""

    def __init__(self, cfg: Any, optimizer: Any) -> None:
        super().__init__(cfg, optimizer)
        rates = list(cfg.lr) if isinstance(cfg.lr, Collection) else [cfg.lr]
        if len(rates) != 1:
            raise UserError(f"--lr-scheduler inverse_sqrt_without_warmup takes one --lr, not {len(rates)}")
        self.first_lr = rates[0]
        self.step_update(0)

    def step_update(self, num_updates: int) -> float:
        """Return the rate of the next update, after ``num_updates``."""
        constant = self.cfg.lr_decay_constant
        rate = self.first_lr * math.sqrt(constant / (constant + num_updates))
        self.optimizer.set_lr(rate)
        return float(rate)
