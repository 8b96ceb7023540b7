"""``<name>_with_diagnostics``: a registered criterion with two more settings and no other change.

The criterion switches the recorder on and tells it when a forward pass runs. Its class keeps the name of the class that
it extends: fairseq compares that name on resume, so a run can be recorded from any checkpoint on.
"""

# No `from __future__ import annotations`: fairseq makes flags of the types of dataclass fields.

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY, FairseqCriterion, register_criterion

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


class WithDiagnostics(FairseqCriterion):
    """Mixin for criteria that :func:`extend` makes. Listed before the extended class."""

    settings: dict[str, Any]
    """The values of :data:`SETTINGS`."""
    watch: Any = None
    """Set during an update that is recorded: its ``forward_pass()`` is a context, and ``saw()`` gets the result."""
    listeners: Sequence[Callable[[Any], None]] = ()
    """Each is called with the result of every forward pass in training."""

    @classmethod
    def build_criterion(cls, cfg: Any, task: Any) -> "WithDiagnostics":
        """Build the criterion as fairseq does, after a check of its settings.

        Raises:
            UserError: settings out of their range, all together.
        """
        values = {setting.name: getattr(cfg, setting.name) for setting in SETTINGS}
        problems = [
            f"{flag(setting.name)} {values[setting.name]}: {problem}"
            for setting in SETTINGS
            if (problem := setting.problem(values[setting.name]))
        ]
        if problems:
            raise UserError(problems)
        criterion: WithDiagnostics = super().build_criterion(cfg, task)
        criterion.settings = values
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
    base, settings = CRITERION_REGISTRY[name], CRITERION_DATACLASS_REGISTRY[name]
    fields = [
        (setting.name, setting.kind, dataclasses.field(default=setting.default, metadata={"help": setting.help}))
        for setting in SETTINGS
    ]
    extended = dataclasses.make_dataclass(f"{settings.__name__}WithDiagnostics", fields, bases=(settings,))
    cls = type(base.__name__, (WithDiagnostics, base), {"__module__": base.__module__})
    register_criterion(name + SUFFIX, dataclass=extended)(cls)


def register() -> None:
    """Extend the criteria of the papers' tasks; a second call does nothing."""
    for name in EXTENDED:
        extend(name)
