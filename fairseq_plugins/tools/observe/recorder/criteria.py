"""``<name>_with_diagnostics``: a registered criterion with the settings of recorder and guard, and no other change.

The criterion switches the recorder on and reports forward passes. Its class keeps the name of the extended class, which
fairseq compares on resume, so a run can be recorded from any checkpoint on.
"""

# No `from __future__ import annotations`: fairseq makes flags of the types of dataclass fields.

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Optional

from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY, FairseqCriterion, register_criterion
from fairseq.dataclass import ChoiceEnum

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.tools.observe.recorder.entries import SUFFIX

EXTENDED = (
    "cross_entropy",
    "label_smoothed_cross_entropy",
    "label_smoothed_cross_entropy_by_sentence",
    "chunked_cross_entropy",
    "chunked_label_smoothed_cross_entropy",
    "cross_entropy_in_chunks",
    "label_smoothed_cross_entropy_in_chunks",
    "adaptive_loss",
    "label_smoothed_cross_entropy_with_alignment",
    "label_smoothed_cross_entropy_with_ctc",
    "label_smoothed_cross_entropy_with_rdrop",
)
STOP, SKIP = "stop", "skip"


@dataclasses.dataclass
class Diagnostics:
    """Settings of recorder and guard, which are flags of every criterion that is extended."""

    diagnostics_interval: int = field(
        default=100, metadata={"help": "record activations, gradients and residual connections in every N-th update"}
    )
    divergence_action: Optional[ChoiceEnum([STOP, SKIP])] = field(  # type: ignore[valid-type]
        default=None, metadata={"help": "enable the divergence guard; action on divergence (default: no guard)"}
    )
    divergence_band: float = field(
        default=8.0,
        metadata={"help": "a loss or gradient norm this many standard deviations above its running mean is a spike"},
    )
    divergence_patience: int = field(
        default=5, metadata={"help": "number of consecutive abnormal updates after which training stops"}
    )
    divergence_plateau: int = field(
        default=4000,
        metadata={
            "help": "updates after warm-up from which a training loss at the unigram entropy counts as failed to train "
            "(0: never)"
        },
    )


class WithDiagnostics(FairseqCriterion):
    """Mixin for criteria that :func:`extend` makes. Listed before the extended class.

    Attributes:
        settings: the added flags.
        watch: set during a recorded update; its ``run()`` calls the extended criterion.
        listeners: called with the result of every forward pass in training.
    """

    settings: Diagnostics
    watch: Any = None
    listeners: Sequence[Callable[[Any], None]] = ()

    @classmethod
    def build_criterion(cls, cfg: Any, task: Any) -> "WithDiagnostics":
        """Build the criterion as fairseq does, and keep its settings."""
        criterion: WithDiagnostics = super().build_criterion(cfg, task)
        criterion.settings = Diagnostics(*(getattr(cfg, own.name) for own in dataclasses.fields(Diagnostics)))
        return criterion

    def forward(self, model: Any, sample: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the extended criterion, and report its forward pass."""
        forward = partial(self.watch.run, super().forward) if self.watch else super().forward
        result = forward(model, sample, *args, **kwargs)
        if self.training:
            for listener in self.listeners:
                listener(result)
        return result


def extend(name: str) -> None:
    """Register ``<name>_with_diagnostics`` for a registered criterion with a dataclass; a second call does nothing.

    Raises UserError: there is no criterion of that name.
    """
    if name + SUFFIX in CRITERION_REGISTRY:
        return
    if name not in CRITERION_DATACLASS_REGISTRY:
        raise UserError(unknown_name("criterion", name, CRITERION_DATACLASS_REGISTRY))
    base, settings = CRITERION_REGISTRY[name], CRITERION_DATACLASS_REGISTRY[name]
    extended = dataclasses.make_dataclass(f"{settings.__name__}WithDiagnostics", [], bases=(Diagnostics, settings))
    cls = type(base.__name__, (WithDiagnostics, base), {"__module__": base.__module__})
    register_criterion(name + SUFFIX, dataclass=extended)(cls)


for _name in EXTENDED:
    extend(_name)
