"""Actions on an abnormal update: the action of the user, rung by rung, and finally stop."""

from __future__ import annotations

from dataclasses import dataclass

from fairseq_plugins.observe.guard.settings import FP32, LOWER_LR, SKIP, STOP, Settings

ENDS = "the training ends here"
NOTED = "noted"
"""No action: the update is reported and applied."""
MOST_HALVINGS = 10
"""Maximum number of halvings; after that the learning rate is no longer the user's."""


@dataclass(frozen=True)
class Rung:
    """One step of the ladder.

    Attributes:
        action: one of the four actions, or :data:`NOTED`.
        says: description of the step, for the log and the report.
        applied: whether this update changes the weights all the same.
    """

    action: str
    says: str
    applied: bool = False


@dataclass(frozen=True)
class Standing:
    """State of a training at an abnormal update.

    Attributes:
        in_a_row: consecutive abnormal updates, including this one.
        finite: whether loss and gradient of the update are finite.
        half: whether it trains in half precision.
        halvings: number of halvings of the learning rate so far.
        gradient_alone: whether only the gradient norm is abnormal, and it is finite.
    """

    in_a_row: int
    finite: bool
    half: bool
    halvings: int
    gradient_alone: bool = False


def _is_only_noted(settings: Settings, standing: Standing) -> bool:
    """Return whether an abnormal update is applied like a normal one.

    Clipping handles a single large gradient, and most trainings continue as before; if one does not, its loss shows it
    at the next update. Skipping costs one batch, so `skip` acts immediately.
    """
    if not standing.gradient_alone or settings.action == SKIP or standing.in_a_row >= settings.patience:
        return False
    return settings.action != LOWER_LR or standing.in_a_row == 1


def decide(settings: Settings, standing: Standing) -> Rung:
    """Return the next rung."""
    if _is_only_noted(settings, standing):
        until = 2 if settings.action == LOWER_LR else settings.patience
        says = f"noted: the loss is within its band, so the update is kept ({standing.in_a_row} in a row, "
        return Rung(NOTED, f"{says}{settings.action} at {until})", applied=True)
    if settings.action == STOP:
        several = f"{standing.in_a_row} abnormal updates in a row; " if standing.gradient_alone else ""
        return Rung(STOP, f"stop: {several}{ENDS}")
    if settings.action == FP32:
        if standing.half:
            return Rung(FP32, "fp32: the training continues in full precision, from this update on")
        return Rung(STOP, f"fp32, then stop: it is in full precision already; {ENDS}")
    if standing.in_a_row >= settings.patience:
        return Rung(STOP, f"{settings.action}, then stop: {standing.in_a_row} abnormal updates in a row; {ENDS}")
    if settings.action == SKIP:
        return Rung(SKIP, f"skip: the update is dropped ({standing.in_a_row} in a row, {settings.patience} end it)")
    return _lower(standing)


def _lower(standing: Standing) -> Rung:
    if standing.halvings >= MOST_HALVINGS:
        return Rung(STOP, f"{LOWER_LR}, then stop: the learning rate was halved {standing.halvings} times; {ENDS}")
    what = f"the learning rate is 1/{2 ** (standing.halvings + 1)} of the schedule's from here on"
    # A second abnormal update shows that it is not the batch but the weights: they must move to recover.
    if standing.in_a_row > 1 and standing.finite:
        return Rung(LOWER_LR, f"{LOWER_LR}: {what}, this update included", applied=True)
    return Rung(LOWER_LR, f"{LOWER_LR}: the update is dropped, {what}")
