"""``<name>_with_diagnostics``: a registered criterion, its settings and two more, and nothing else changed.

The criterion is the switch of the recorder and tells it when a forward pass runs. Its class keeps the name of the
criterion's that it extends: fairseq compares that name on resume, and a run can so be recorded from any checkpoint on.
"""

# No `from __future__ import annotations`: fairseq makes flags of the types of dataclass fields.

import dataclasses
from contextlib import AbstractContextManager
from typing import Any, Optional, Protocol

from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY, FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass

from fairseq_plugins.errors import UserError, unknown_name

SUFFIX = "_with_diagnostics"
EXTENDED = (
    "cross_entropy",
    "label_smoothed_cross_entropy",
    "adaptive_loss",
    "label_smoothed_cross_entropy_with_alignment",
    "label_smoothed_cross_entropy_with_ctc",
    "label_smoothed_cross_entropy_with_rdrop",
)
INTERVAL, KEEP = "diagnostics_interval", "diagnostics_keep"
SETTINGS = (
    (INTERVAL, int, 100, "record activations, gradients and junctions in every N-th update"),
    (KEEP, int, 1000, "entries that recorder.jsonl in --save-dir keeps at least, the last ones"),
)


class Watch(Protocol):
    """What a criterion tells of its forward passes."""

    def forward_pass(self) -> AbstractContextManager[None]:
        """Entered for the time of a forward pass."""

    def saw(self, loss: Any, sample_size: Any) -> None:
        """Called with what came of it."""


class WithDiagnostics(FairseqCriterion):
    """Stands before the criterion that it extends among the bases of a class that :func:`extend` makes."""

    interval: int
    keep: int
    watch: Optional[Watch] = None
    """Set for the time of an update that is recorded."""

    @classmethod
    def build_criterion(cls, cfg: Any, task: Any) -> "WithDiagnostics":
        """As the criterion's own.

        Raises:
            UserError: settings out of their range, all together.
        """
        values = {name: getattr(cfg, name) for name, *_ in SETTINGS}
        wrong = [
            f"--{name.replace('_', '-')} {value}: it must be at least 1" for name, value in values.items() if value < 1
        ]
        if wrong:
            raise UserError(wrong)
        criterion: WithDiagnostics = super().build_criterion(cfg, task)
        criterion.interval, criterion.keep = values[INTERVAL], values[KEEP]
        return criterion

    def forward(self, model: Any, sample: Any, *args: Any, **kwargs: Any) -> Any:
        """As the criterion's own."""
        if self.watch is None:
            return super().forward(model, sample, *args, **kwargs)
        with self.watch.forward_pass():
            result = super().forward(model, sample, *args, **kwargs)
        self.watch.saw(result[0], result[1])
        return result


def extend(name: str) -> None:
    """Register ``<name>_with_diagnostics``; a second call does nothing.

    Args:
        name: a registered criterion with a dataclass.

    Raises:
        UserError: there is none of that name.
    """
    if name + SUFFIX in CRITERION_REGISTRY:
        return
    if name not in CRITERION_DATACLASS_REGISTRY:
        raise UserError(unknown_name("criterion", name, CRITERION_DATACLASS_REGISTRY))
    base = CRITERION_REGISTRY[name]
    module = {"__module__": base.__module__}
    settings = _extended(CRITERION_DATACLASS_REGISTRY[name])
    register_criterion(name + SUFFIX, dataclass=settings)(type(base.__name__, (WithDiagnostics, base), module))


def _extended(base: type[FairseqDataclass]) -> type[FairseqDataclass]:
    """The dataclass of a criterion with the settings of the recorder."""
    fields = [
        (name, kind, dataclasses.field(default=default, metadata={"help": text}))
        for name, kind, default, text in SETTINGS
    ]
    return dataclasses.make_dataclass(f"{base.__name__}WithDiagnostics", fields, bases=(base,))


def register() -> None:
    """Extend the criteria of the papers' tasks; a second call does nothing."""
    for name in EXTENDED:
        extend(name)
