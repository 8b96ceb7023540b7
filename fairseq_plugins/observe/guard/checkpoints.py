"""State of the guard in checkpoints, and the checkpoint that is saved when it ends a training.

``extra_state`` has the factor on the learning rate, the bands, and whether the training has switched to full precision.
The optimizer's state has the rate of the schedule, without the factor, so that a schedule that multiplies the rate it
finds continues correctly.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from fairseq_plugins.checkpoints.files import read_checkpoint
from fairseq_plugins.errors import Diverged, UserError
from fairseq_plugins.observe.guard import precision
from fairseq_plugins.observe.guard.guarding import ATTRIBUTE, guard_of
from fairseq_plugins.observe.guard.places import not_finite
from fairseq_plugins.observe.guard.report import DIRECTORY
from fairseq_plugins.observe.guard.unguarded import refuse_broken_weights

logger = logging.getLogger(__name__)

LAST = "last.pt"
"""Checkpoint in the directory of the reports: the training at its end."""


def save(state_dict: Callable[..., dict[str, Any]], trainer: Trainer) -> dict[str, Any]:
    """``Trainer.state_dict`` with the state of the guard."""
    guard = guard_of(trainer)
    if guard is None:
        return state_dict(trainer)
    with guard.rates.lifted(trainer.optimizer):
        state = state_dict(trainer)
    state["extra_state"][ATTRIBUTE] = guard.state()
    return state


def load(
    load_checkpoint: Callable[..., Any],
    trainer: Trainer,
    filename: str,
    reset_optimizer: bool = False,
    reset_lr_scheduler: bool = False,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """``Trainer.load_checkpoint`` that restores the state of the guard.

    Raises:
        UserError: the checkpoint was trained in another precision.
    """
    guard = guard_of(trainer)
    if guard is not None and not reset_optimizer and precision.is_half(trainer) and _is_full(trainer, filename):
        logger.info("divergence guard: this training had switched to full precision and continues in it")
        precision.to_full(trainer)
    try:
        extra_state = load_checkpoint(trainer, filename, reset_optimizer, reset_lr_scheduler, *args, **kwargs)
    except AssertionError as error:
        if "Optimizer does not match" not in str(error):
            raise
        raise UserError(
            f"{filename}: it was trained in another precision or with another optimizer: use the flags that it was "
            "trained with (after --divergence-action fp32, no --fp16), or --reset-optimizer"
        ) from error
    # A new optimizer means a new training, perhaps on other data.
    state = {} if reset_optimizer else dict((extra_state or {}).get(ATTRIBUTE) or {})
    if guard is not None and state:
        if reset_lr_scheduler:
            state["halvings"] = 0
        guard.restore(state, trainer.optimizer)
        trainer.lr_step_update()
    elif state.get("halvings"):
        logger.warning(
            "the divergence guard had lowered the learning rate of this training to 1/%d of the schedule's; "
            "without --divergence-action it is the schedule's again",
            2 ** state["halvings"],
        )
    return extra_state


def _is_full(trainer: Trainer, filename: str) -> bool:
    """Return whether a checkpoint was written after a change to full precision; the first process reads it."""
    full = False
    if trainer.data_parallel_rank == 0 and os.path.isfile(filename):
        state = read_checkpoint(Path(filename))
        full = bool((state.get("extra_state") or {}).get(ATTRIBUTE, {}).get("full"))
    if trainer.data_parallel_world_size > 1:
        group = trainer.data_parallel_process_group
        full = distributed_utils.broadcast_object(full, src_rank=0, group=group, dist_device=trainer.device)
    return bool(full)


def keep_last(train: Callable[..., Any], cfg: Any, trainer: Trainer, task: Any, epoch_itr: Any, *args: Any) -> Any:
    """``fairseq_cli.train.train``, the only function with the position in the data; saves a training that was ended.

    Raises:
        Diverged: passed on, or the training is complete and its weights are not finite.
    """
    try:
        valid_losses, should_stop = train(cfg, trainer, task, epoch_itr, *args)
        if should_stop:
            refuse_broken_weights(trainer, valid_losses)
        return valid_losses, should_stop
    except Diverged:
        # A training cannot continue from weights that are not finite.
        if not cfg.checkpoint.no_save and not not_finite(trainer.get_model()):
            _save_last(trainer, epoch_itr)
        # The first process that exits ends the others, and the one that writes may not be finished.
        if trainer.data_parallel_world_size > 1:
            dist.barrier(group=trainer.data_parallel_process_group)
        raise


def _save_last(trainer: Trainer, epoch_itr: Any) -> None:
    path = Path(trainer.cfg.checkpoint.save_dir) / DIRECTORY / LAST
    trainer.consolidate_optimizer()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        trainer.save_checkpoint(str(path), {"train_iterator": epoch_itr.state_dict(), "val_loss": None})
    except OSError as error:
        logger.warning("divergence guard: not saved: %s: %s", path, error.strerror or error)
