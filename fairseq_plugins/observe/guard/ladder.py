"""What is done about an abnormal update: the action that was asked for, rung by rung, and in the end stop."""

from __future__ import annotations

from dataclasses import dataclass

from fairseq_plugins.observe.guard.settings import FP32, LOWER_LR, SKIP, STOP, Settings

ENDS = "the training ends here"
NOTED = "noted"
"""No action: the update is reported and made."""
MOST_HALVINGS = 10
"""A learning rate that was halved as often is no longer what the user has asked for."""


@dataclass(frozen=True)
class Rung:
    """One step of the ladder.

    Attributes:
        action: one of the four actions, or :data:`NOTED`.
        says: the step in words, for the log and the report.
        applied: whether the weights are changed by this update all the same.
    """

    action: str
    says: str
    applied: bool = False


@dataclass(frozen=True)
class Standing:
    """Where a training stands when an update is abnormal.

    Attributes:
        in_a_row: abnormal updates without a normal one between them, this one included.
        finite: whether loss and gradient of the update are.
        half: whether it trains in half precision.
        halvings: of the learning rate so far.
        gradient_alone: whether the gradient norm is all that is abnormal, and finite.
    """

    in_a_row: int
    finite: bool
    half: bool
    halvings: int
    gradient_alone: bool = False


def _is_only_noted(settings: Settings, standing: Standing) -> bool:
    """Whether an update is made as if nothing were the matter with it.

    A gradient that is long once is what clipping is for, and most trainings go on as before; where one does not, its
    loss says so with the next update. Dropping it costs one batch, so who has asked for that gets it at once.
    """
    if not standing.gradient_alone or settings.action == SKIP or standing.in_a_row >= settings.patience:
        return False
    return settings.action != LOWER_LR or standing.in_a_row == 1


def decide(settings: Settings, standing: Standing) -> Rung:
    """The next rung."""
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
