"""A resumed training forgets validations: ``--patience`` and ``--lr-patience`` count from 0, schedules miss an epoch.

fairseq saves before it tells the schedule, so ``reduce_lr_on_plateau`` misses an epoch, and stores neither count. That
of ``--patience`` is on a function, and a further training of the same process, as in a sweep of Hydra, begins with it
and with the best loss so far. https://github.com/facebookresearch/fairseq/issues/3531
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from fairseq import checkpoint_utils
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule
from fairseq.trainer import Trainer
from fairseq_cli import train

COUNTS = ("num_bad_epochs", "cooldown_counter")
PATIENCE = "should_stop_early"
"""Key of the extra state for the attributes of fairseq's function of that name."""
ATTRIBUTES = ("best", "num_runs")


def tell_schedule(
    load: Callable[..., Any],
    trainer: Trainer,
    filename: str,
    reset_optimizer: bool = False,
    reset_lr_scheduler: bool = False,
    *args: Any,
    reset_meters: bool = False,
) -> Any:
    """``Trainer.load_checkpoint``, after which the schedule has seen the last validation of a finished epoch.

    The count of ``--patience`` is restored where fairseq then restores the best loss.
    """
    for function, name in product((train.should_stop_early, checkpoint_utils.save_checkpoint), ATTRIBUTES):
        vars(function).pop(name, None)
    extra_state = load(trainer, filename, reset_optimizer, reset_lr_scheduler, *args, reset_meters=reset_meters)
    if extra_state and not (reset_optimizer or reset_meters):
        vars(train.should_stop_early).update(extra_state.get(PATIENCE, {}))
    if extra_state and not (reset_optimizer or reset_lr_scheduler):
        position, loss = extra_state["train_iterator"], extra_state.get("val_loss")
        if position["iterations_in_epoch"] == 0 and loss is not None:
            trainer.lr_step(position["epoch"] - 1, loss)
    return extra_state


def save_patience(
    save: Callable[..., Any], trainer: Trainer, filename: str, extra_state: dict[str, Any], *args: Any, **kwargs: Any
) -> Any:
    """``Trainer.save_checkpoint``."""
    counted = {name: value for name, value in vars(train.should_stop_early).items() if name in ATTRIBUTES}
    return save(trainer, filename, {**extra_state, PATIENCE: counted}, *args, **kwargs)


def save_counts(state_dict: Callable[..., dict[str, Any]], schedule: Any) -> dict[str, Any]:
    """``ReduceLROnPlateauLRSchedule.state_dict`` with the epochs without improvement."""
    return {**state_dict(schedule), **{name: getattr(schedule.lr_scheduler, name) for name in COUNTS}}


def load_counts(load: Callable[..., None], schedule: Any, state: dict[str, Any]) -> None:
    """``ReduceLROnPlateauLRSchedule.load_state_dict``; the state of an older checkpoint has no counts."""
    load(schedule, state)
    vars(schedule.lr_scheduler).update({name: state[name] for name in COUNTS if name in state})


WRAPPED = (
    (Trainer, "load_checkpoint", tell_schedule, 20),
    (Trainer, "save_checkpoint", save_patience, 10),
    (ReduceLROnPlateauLRSchedule, "state_dict", save_counts),
    (ReduceLROnPlateauLRSchedule, "load_state_dict", load_counts),
)
