"""fairseq's Adam in one pass over the memory: torch's fused kernel, for CPUs and GPUs.

fairseq's ``adam`` reads and writes each tensor about nine times an update, in as many calls from Python. The kernel
reads each number once, and takes a list of tensors in one call::

    fairseq-train data-bin --user-dir "$(python -m fairseq_plugins)" --optimizer fused_adam ...

or in YAML ``optimizer: {_name: fused_adam, adam_betas: "(0.9, 0.98)"}``. Flags and defaults are those of ``adam``. In
update t, for each tensor p with gradient g, fairseq computes (``fairseq/optim/adam.py``)::

    m = beta_1 m + (1 - beta_1) g               v = beta_2 v + (1 - beta_2) g^2
    p -= weight_decay lr p
    p -= lr sqrt(c_2) / c_1 m / (sqrt(v) + eps)             with c_i = 1 - beta_i^t

and torch's ``AdamW`` the same with another last line::

    p -= lr / c_1 m / (sqrt(v) / sqrt(c_2) + eps)

With eps / sqrt(c_2) for its eps, the two are equal; but the kernel rounds in another order, so a training is not the
one of ``adam`` bit for bit. For that, see :mod:`fairseq_plugins.training.foreach_adam`. The state is that of ``adam``,
and a training may change to it and back at any checkpoint.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from fairseq.optim import register_optimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from torch import Tensor

from fairseq_plugins.training.foreach_adam import Adam, FairseqForeachAdam


class FusedAdam(Adam):
    """fairseq's ``Adam``, with its state, to rounding. ``amsgrad`` is not supported.

    Args:
        params: parameters or torch's parameter groups.
        settings: ``lr``, ``betas``, ``eps`` and ``weight_decay``.
    """

    # The kernel keeps no intermediate results that a cache would have to hold.
    chunk_on_cpu = Adam.chunk

    def _apply(
        self,
        weights: list[Tensor],
        grads: list[Tensor],
        first: list[Tensor],
        second: list[Tensor],
        t: int,
        group: dict[str, Any],
    ) -> None:
        beta1, beta2 = group["betas"]
        steps = [torch.tensor(float(t), device=weights[0].device)] * len(weights)
        torch._fused_adamw_(
            weights,
            grads,
            first,
            second,
            [],
            steps,
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"] / math.sqrt(1 - beta2**t),
            amsgrad=False,
            maximize=False,
        )


@register_optimizer("fused_adam", dataclass=FairseqAdamConfig)
class FairseqFusedAdam(FairseqForeachAdam):
    """``--optimizer fused_adam``.

    Raises:
        UserError: ``--fp16-adam-stats``, which only apex has.
    """

    name, kind = "fused_adam", FusedAdam


# fairseq compares the names of optimizers when a training is resumed.
FairseqFusedAdam.__name__ = FairseqAdam.__name__
