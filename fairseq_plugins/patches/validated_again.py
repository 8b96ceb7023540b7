"""A validation and its checkpoint are repeated for every batch that makes no update: on overflow or out of memory.

fairseq looks only at whether the number of updates is due, so ``--patience`` counts the same weights many times. Not
reported upstream so far.
"""

from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer
from fairseq_cli import train

SEEN = "updates_at_last_batch"
"""Attribute of a trainer: its number of updates when ``validate_and_save`` was last called."""


def after_an_update(
    validate: Callable[..., Any], cfg: Any, trainer: Trainer, task: Any, epoch_itr: Any, subsets: Any, ends: bool
) -> Any:
    """``validate_and_save``, which follows every batch; ``ends`` is whether the batch is the last of its epoch."""
    before = vars(trainer).get(SEEN)
    setattr(trainer, SEEN, trainer.get_num_updates())
    if not ends and before == trainer.get_num_updates():
        return [None], False
    return validate(cfg, trainer, task, epoch_itr, subsets, ends)


WRAPPED = ((train, "validate_and_save", after_an_update),)
