"""A training resumed at the end of an epoch keeps that epoch's validation from its learning rate schedule.

fairseq saves before it tells the schedule, so ``reduce_lr_on_plateau`` misses an epoch; it also forgets for how many
epochs the loss has not improved (``--lr-patience``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule
from fairseq.trainer import Trainer

COUNTS = ("num_bad_epochs", "cooldown_counter")


def tell_schedule(
    load: Callable[..., Any],
    trainer: Trainer,
    filename: str,
    reset_optimizer: bool = False,
    reset_lr_scheduler: bool = False,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """``Trainer.load_checkpoint``, after which the schedule has seen the last validation of a finished epoch."""
    extra_state = load(trainer, filename, reset_optimizer, reset_lr_scheduler, *args, **kwargs)
    if extra_state and not (reset_optimizer or reset_lr_scheduler):
        position, loss = extra_state["train_iterator"], extra_state.get("val_loss")
        if position["iterations_in_epoch"] == 0 and loss is not None:
            trainer.lr_step(position["epoch"] - 1, loss)
    return extra_state


def save_counts(state_dict: Callable[..., dict[str, Any]], schedule: Any) -> dict[str, Any]:
    """``ReduceLROnPlateauLRSchedule.state_dict`` with the epochs without improvement."""
    return {**state_dict(schedule), **{name: getattr(schedule.lr_scheduler, name) for name in COUNTS}}


def load_counts(load: Callable[..., None], schedule: Any, state: dict[str, Any]) -> None:
    """``ReduceLROnPlateauLRSchedule.load_state_dict``; the state of an older checkpoint has no counts."""
    load(schedule, state)
    vars(schedule.lr_scheduler).update({name: state[name] for name in COUNTS if name in state})


WRAPPED = (
    (Trainer, "load_checkpoint", tell_schedule, 20),
    (ReduceLROnPlateauLRSchedule, "state_dict", save_counts),
    (ReduceLROnPlateauLRSchedule, "load_state_dict", load_counts),
)
