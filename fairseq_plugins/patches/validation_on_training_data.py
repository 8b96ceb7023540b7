"""``--valid-subset train`` disturbs the training.

Both request the iterator of one data set and get the same object, so validation advances the training's epoch and
checkpoints are missing. https://github.com/facebookresearch/fairseq/issues/1156 reports the shared iterator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer


def iterator_of_its_own(
    get_valid_iterator: Callable[..., Any], trainer: Trainer, subset: str, disable_iterator_cache: bool = False
) -> Any:
    """Return a new iterator if the data set is the training set; otherwise fairseq's, unchanged."""
    same = subset == trainer.cfg.dataset.train_subset
    return get_valid_iterator(trainer, subset, disable_iterator_cache=disable_iterator_cache or same)


WRAPPED = ((Trainer, "get_valid_iterator", iterator_of_its_own),)
