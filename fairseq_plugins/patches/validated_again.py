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


def after_an_update(validate: Callable[..., Any], cfg: Any, trainer: Trainer, *args: Any) -> Any:
    """``validate_and_save``, which follows every batch; the last argument is whether the epoch ends."""
    before, now = vars(trainer).get(SEEN), trainer.get_num_updates()
    setattr(trainer, SEEN, now)
    return ([None], False) if before == now and not args[-1] else validate(cfg, trainer, *args)


WRAPPED = ((train, "validate_and_save", after_an_update),)
