"""Muon for the matrices of the layers, and Adam for everything else: embeddings, biases, norms, the output projection.

Jordan et al. 2024, https://kellerjordan.github.io/posts/muon; ``torch.optim.Muon`` is PyTorch's. In update t, for each
matrix W, ``(A, B)``, with gradient G::

    M = mu M + (1 - mu) G,   W -= lr weight_decay W,   W -= lr s NewtonSchulz(mu M + (1 - mu) G)

where NewtonSchulz brings all singular values near 1, by products of matrices in bfloat16, and s is
sqrt(max(1, A / B)), ``original``, or 0.2 sqrt(max(A, B)), ``match_rms_adamw``, with which the rate and the weight decay
of Adam also suit Muon (Liu et al. 2025, https://arxiv.org/abs/2502.16982). docs/training.md has an example.
"""

# No `from __future__ import annotations`: fairseq makes flags of the types of dataclass fields.

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.optim import FairseqOptimizer, register_optimizer

from fairseq_plugins.core.initialisation import MULTIPLIERS
from fairseq_plugins.errors import UserError
from fairseq_plugins.training.adam_base import MomentConfig, moment_settings
from fairseq_plugins.training.fast_adam import Adam
from fairseq_plugins.training.param_groups import MATRIX


@dataclass
class MuonConfig(MomentConfig):
    """Flags of ``--optimizer muon``; those that Adam also has keep fairseq's names."""

    muon_momentum: float = field(default=0.95, metadata={"help": "decay rate of the mean of the gradients of matrices"})
    muon_adjust: ChoiceEnum(["match_rms_adamw", "original"]) = field(  # type: ignore[valid-type]
        default="match_rms_adamw", metadata={"help": "how the rate of a matrix depends on its shape"}
    )
    muon_lr_scale: float = field(
        default=1.0, metadata={"help": "learning rate of the matrices, as a multiple of that of the other parameters"}
    )


class MuonAndAdam(torch.optim.Optimizer):
    """Two optimizers in one, whose state and groups are one: a checkpoint holds both.

    Args:
        adam, muon: each has its parameters; the groups of ``adam`` come first.
    """

    def __init__(self, adam: torch.optim.Optimizer, muon: torch.optim.Optimizer) -> None:
        super().__init__([*adam.param_groups, *muon.param_groups], {})
        self.adam, self.muon = adam, muon

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Update every parameter that has a gradient once; returns the result of ``closure``."""
        for part in (self.adam, self.muon):
            # A loaded state is a new object, and so are groups.
            part.state = self.state
            part.param_groups = [group for group in self.param_groups if ("momentum" in group) == (part is self.muon)]
        loss = self.adam.step(closure)
        self.muon.step()
        return loss


@register_optimizer("muon", dataclass=MuonConfig)
class FairseqMuon(FairseqOptimizer):
    """``--optimizer muon``; a UserError if the model has no matrices of layers."""

    def __init__(self, cfg: Any, params: Iterable[Any]) -> None:
        super().__init__(cfg)
        settings = moment_settings(cfg, "adam")
        kinds: dict[bool, list[Any]] = {False: [], True: []}
        for parameter in params:
            kinds[getattr(parameter, "param_group", None) == MATRIX].append(parameter)
        if not kinds[True]:
            raise UserError(
                "--optimizer muon needs unflattened weights, and finds no matrices of layers: "
                "add --fp16-no-flatten-grads, or choose another --ddp-backend"
            )
        muon = torch.optim.Muon(
            kinds[True],
            lr=settings["lr"] * cfg.muon_lr_scale,
            weight_decay=settings["weight_decay"],
            momentum=cfg.muon_momentum,
            adjust_lr_fn=str(cfg.muon_adjust),
        )
        muon.param_groups[0][MULTIPLIERS] = {"lr": cfg.muon_lr_scale}
        self._optimizer = MuonAndAdam(Adam(kinds[False], **settings), muon)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """Return the settings that a resumed training takes from its command line, for all groups."""
        settings = moment_settings(self.cfg, "adam")
        return {name: settings[name] for name in ("lr", "weight_decay")}
