"""The flags of the guard, which every criterion with diagnostics has."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from fairseq_plugins.errors import unknown_name
from fairseq_plugins.observe.recorder.criteria import Setting, at_least

STOP, SKIP = "stop", "skip"
ACTIONS = (STOP, SKIP)
ACTION, BAND = "divergence_action", "divergence_band"
PATIENCE, PLATEAU = "divergence_patience", "divergence_plateau"


def _check_action(value: str | None) -> str | None:
    return None if value is None or value in ACTIONS else unknown_name("action", value, ACTIONS)


SETTINGS = (
    Setting(
        ACTION,
        Optional[str],
        None,
        f"watch for divergence and then do this: {', '.join(ACTIONS)} (default: do not watch)",
        _check_action,
    ),
    Setting(
        BAND,
        float,
        8.0,
        "standard deviations above its running mean at which a loss or gradient norm is a spike",
        at_least(1),
    ),
    Setting(PATIENCE, int, 5, "abnormal updates in a row after which the training is stopped", at_least(1)),
    Setting(
        PLATEAU,
        int,
        4000,
        "updates after warm-up; from then on a training loss at the entropy of token "
        "frequencies is called failed to train (0: never)",
        at_least(0),
    ),
)


class Settings(NamedTuple):
    """Values of the flags.

    Attributes:
        action: one of :data:`ACTIONS`.
        band: width of the bands in deviations.
        patience: abnormal updates in a row after which the training ends.
        plateau: updates after warm-up; 0 for never.
    """

    action: str
    band: float = 8.0
    patience: int = 5
    plateau: int = 4000


def read(values: dict[str, Any]) -> Settings | None:
    """Return the guard's part of a criterion's settings; ``None`` without an action."""
    if values[ACTION] is None:
        return None
    return Settings(values[ACTION], float(values[BAND]), values[PATIENCE], values[PLATEAU])
