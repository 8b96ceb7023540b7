"""State of the guard in checkpoints, and the checkpoint that is saved when a training diverges.

``extra_state`` has the bands, so that a resumed training continues with them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from fairseq.trainer import Trainer

from fairseq_plugins.errors import Diverged, UserError
from fairseq_plugins.observe.guard.ending import refuse_broken_weights
from fairseq_plugins.observe.guard.guarding import ATTRIBUTE, guard_of
from fairseq_plugins.observe.guard.repeating import not_finite
from fairseq_plugins.observe.guard.report import DIRECTORY

logger = logging.getLogger(__name__)

LAST = "last.pt"
"""Checkpoint in the directory of the reports: the training at its end."""


def save(state_dict: Callable[..., dict[str, Any]], trainer: Trainer) -> dict[str, Any]:
    """``Trainer.state_dict`` with the state of the guard."""
    guard, state = guard_of(trainer), state_dict(trainer)
    if guard is not None:
        state["extra_state"][ATTRIBUTE] = {"signals": guard.signals.state()}
    return state


def load(
    load_checkpoint: Callable[..., Any],
    trainer: Trainer,
    filename: str,
    reset_optimizer: bool = False,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """``Trainer.load_checkpoint`` that restores the state of the guard.

    Raises:
        UserError: the checkpoint was trained in another precision.
    """
    try:
        extra_state = load_checkpoint(trainer, filename, reset_optimizer, *args, **kwargs)
    except AssertionError as error:
        if "Optimizer does not match" not in str(error):
            raise
        raise UserError(
            f"{filename}: it was trained in another precision or with another optimizer: use the flags that it was "
            "trained with, or --reset-optimizer"
        ) from error
    guard = guard_of(trainer)
    # A new optimizer means a new training, perhaps on other data.
    if guard is not None and not reset_optimizer:
        state = (extra_state or {}).get(ATTRIBUTE) or {}
        guard.signals.restore(state.get("signals", {}))
    return extra_state


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
