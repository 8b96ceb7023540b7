"""A resumed training forgets how near its end is: validations without improvement, ``--max-update``, its time.

* fairseq looks at ``--max-update``, ``--stop-time-hours`` and ``--patience`` only after an update, so a training that
  has ended makes one more update, or even epoch, each time it is restarted.
* ``--patience`` and ``--lr-patience`` count from 0, since neither count is stored, and ``reduce_lr_on_plateau`` misses
  an epoch, since fairseq saves before it tells the schedule.
* The count of ``--patience`` is on a function, and a further training of the same process, as in a sweep of Hydra,
  begins with it and with the best loss so far. https://github.com/facebookresearch/fairseq/issues/3531
* A training that starts from another's weights counts that one's hours towards ``--stop-time-hours``.
* With another ``--best-checkpoint-metric``, the best value so far is still the old metric's. The new metric may never
  reach this value, and then ``checkpoint_best.pt`` remains as it is.
"""

import logging
import math
from collections.abc import Callable
from itertools import product
from typing import Any

from fairseq import checkpoint_utils
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule
from fairseq.trainer import Trainer
from fairseq_cli import train

logger = logging.getLogger(__name__)

COUNTS = ("num_bad_epochs", "cooldown_counter")
PATIENCE, BEST_BY = "should_stop_early", "best_by"
"""Keys of the extra state: the attributes of fairseq's function of that name, and how the best checkpoint is chosen."""
ATTRIBUTES = ("best", "num_runs")


def best_by(trainer: Trainer) -> str:
    """Return how the best checkpoint is chosen: ``lowest loss of valid``."""
    settings, sets = trainer.cfg.checkpoint, trainer.cfg.dataset.valid_subset
    direction = "highest" if settings.maximize_best_checkpoint_metric else "lowest"
    return f"{direction} {settings.best_checkpoint_metric} of {sets.partition(',')[0]}"


def load_and_stop(load: Callable[..., Any], cfg: Any, trainer: Trainer, **kwargs: Any) -> Any:
    """``load_checkpoint``, the last step before the loop over epochs; a finished training starts none."""
    loaded = load(cfg, trainer, **kwargs)
    limits = trainer.cfg.optimization
    # The time of the checkpoint, which is the same in every process.
    hours = trainer._previous_training_time / 3600
    for name, reached, limit, value in (
        ("num_updates", "max_update", limits.max_update or math.inf, trainer.get_num_updates()),
        ("cumulative_training_time", "stop_time_hours", limits.stop_time_hours or math.inf, hours),
        ("validations without improvement", "patience", cfg.patience, getattr(train.should_stop_early, "num_runs", 0)),
    ):
        if 0 < limit <= value:
            logger.info(f"nothing left to train: {name}: {value} >= {reached}: {limit}")
            # fairseq reads this next; 0 would mean no limit.
            limits.max_epoch = -1
    return loaded


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
    if reset_optimizer:
        trainer._previous_training_time = 0
    if extra_state and not (reset_optimizer or reset_meters):
        if (before := extra_state.get(BEST_BY, best_by(trainer))) != best_by(trainer):
            logger.warning(f"the best checkpoint was that of the {before}; it is now that of the {best_by(trainer)}")
            extra_state = {key: value for key, value in extra_state.items() if key not in ("best", PATIENCE)}
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
    return save(trainer, filename, {**extra_state, PATIENCE: counted, BEST_BY: best_by(trainer)}, *args, **kwargs)


def save_counts(state_dict: Callable[..., dict[str, Any]], schedule: Any) -> dict[str, Any]:
    """``ReduceLROnPlateauLRSchedule.state_dict`` with the epochs without improvement."""
    return {**state_dict(schedule), **{name: getattr(schedule.lr_scheduler, name) for name in COUNTS}}


def load_counts(load: Callable[..., None], schedule: Any, state: dict[str, Any]) -> None:
    """``ReduceLROnPlateauLRSchedule.load_state_dict``; the state of an older checkpoint has no counts."""
    load(schedule, state)
    vars(schedule.lr_scheduler).update({name: state[name] for name in COUNTS if name in state})


WRAPPED = (
    (checkpoint_utils, "load_checkpoint", load_and_stop, 10),
    (Trainer, "load_checkpoint", tell_schedule, 20),
    (Trainer, "save_checkpoint", save_patience, 10),
    (ReduceLROnPlateauLRSchedule, "state_dict", save_counts),
    (ReduceLROnPlateauLRSchedule, "load_state_dict", load_counts),
)
