"""``<name>_with_diagnostics``: a registered criterion with two more settings and no other change.

The criterion switches the recorder on and tells it when a forward pass runs. Its class keeps the name of the class that
it extends: fairseq compares that name on resume, so a run can be recorded from any checkpoint on.
"""

# No `from __future__ import annotations`: fairseq makes flags of the types of dataclass fields.

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY, FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass

from fairseq_plugins.errors import UserError, flag, unknown_name

SUFFIX = "_with_diagnostics"
EXTENDED = (
    "cross_entropy",
    "label_smoothed_cross_entropy",
    "label_smoothed_cross_entropy_by_sentence",
    "cross_entropy_in_chunks",
    "label_smoothed_cross_entropy_in_chunks",
    "adaptive_loss",
    "label_smoothed_cross_entropy_with_alignment",
    "label_smoothed_cross_entropy_with_ctc",
    "label_smoothed_cross_entropy_with_rdrop",
)
INTERVAL, KEEP = "diagnostics_interval", "diagnostics_keep"


class Setting(NamedTuple):
    """A flag of every criterion that is extended.

    Attributes:
        name: name of the field, e.g. ``diagnostics_interval``.
        kind: its type, one that fairseq makes flags from.
        default: its default.
        help: its line of ``--help``.
        problem: takes a value, returns its problem; ``None`` if there is none.
    """

    name: str
    kind: Any
    default: Any
    help: str
    problem: Callable[[Any], str | None]


def at_least(least: float) -> Callable[[Any], str | None]:
    """Return a check for numbers."""
    return lambda value: None if value >= least else f"it must be at least {least}"


SETTINGS = [
    Setting(
        INTERVAL, int, 100, "record activations, gradients and residual connections in every N-th update", at_least(1)
    ),
    Setting(
        KEEP,
        int,
        1000,
        "minimum number of entries, the last ones, that recorder.jsonl in --save-dir keeps",
        at_least(1),
    ),
]
"""Other parts of the package may append settings before :func:`register`; they become flags too."""


class Watch(Protocol):
    """Observer of a criterion's forward passes."""

    def forward_pass(self) -> AbstractContextManager[None]:
        """Entered during a forward pass."""

    def saw(self, loss: Any, sample_size: Any) -> None:
        """Called with its result."""


class WithDiagnostics(FairseqCriterion):
    """Mixin for criteria that :func:`extend` makes. Listed before the extended class."""

    interval: int
    keep: int
    settings: dict[str, Any]
    """The values of :data:`SETTINGS`."""
    watch: Watch | None = None
    """Set during an update that is recorded."""
    listeners: Sequence[Callable[[Any], None]] = ()
    """Each is called with the result of every forward pass in training."""

    @classmethod
    def build_criterion(cls, cfg: Any, task: Any) -> "WithDiagnostics":
        """Build the criterion as fairseq does, after a check of its settings.

        Raises:
            UserError: settings out of their range, all together.
        """
        values = {one.name: getattr(cfg, one.name) for one in SETTINGS}
        wrong = [
            f"{flag(one.name)} {values[one.name]}: {problem}"
            for one in SETTINGS
            if (problem := one.problem(values[one.name]))
        ]
        if wrong:
            raise UserError(wrong)
        criterion: WithDiagnostics = super().build_criterion(cfg, task)
        criterion.settings, criterion.interval, criterion.keep = values, values[INTERVAL], values[KEEP]
        return criterion

    def forward(self, model: Any, sample: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the extended criterion, and report its forward pass."""
        if self.watch is None:
            result = super().forward(model, sample, *args, **kwargs)
        else:
            with self.watch.forward_pass():
                result = super().forward(model, sample, *args, **kwargs)
            self.watch.saw(result[0], result[1])
        if self.training:
            for listener in self.listeners:
                listener(result)
        return result


def extend(name: str) -> None:
    """Register ``<name>_with_diagnostics``; a second call does nothing.

    Args:
        name: a registered criterion with a dataclass.

    Raises:
        UserError: there is no criterion of that name.
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
    """Return the dataclass of a criterion with the settings of the recorder."""
    fields = [
        (one.name, one.kind, dataclasses.field(default=one.default, metadata={"help": one.help})) for one in SETTINGS
    ]
    return dataclasses.make_dataclass(f"{base.__name__}WithDiagnostics", fields, bases=(base,))


def register() -> None:
    """Extend the criteria of the papers' tasks; a second call does nothing."""
    for name in EXTENDED:
        extend(name)
