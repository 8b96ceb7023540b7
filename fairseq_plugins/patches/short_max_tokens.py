"""A ``--max-tokens`` below the longest sentence ends in an assertion in one command, and loses sentences in another.

Validation and generation stop at a bare assertion deep in the batcher; training leaves the longer sentences out, with a
warning among many. https://github.com/facebookresearch/fairseq/issues/2650
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from fairseq import utils
from fairseq.data import data_utils
from fairseq.trainer import Trainer

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.wrapping import wrap


def require_room(max_tokens: float | None, longest: int, which: str = "longest sentence") -> None:
    """Compare ``max_tokens`` with the longest sentence, both in tokens with the end mark.

    Raises:
        UserError: the sentence does not fit.
    """
    if max_tokens is not None and 0 < max_tokens < longest:
        raise UserError(
            f"--max-tokens {int(max_tokens)} is smaller than the {which}, which has {longest} tokens: use at "
            f"least --max-tokens {longest}, or leave longer sentences out of the training with "
            f"--max-source-positions {int(max_tokens)} --max-target-positions {int(max_tokens)}"
        )


def batches_that_fit(
    batch_by_size: Callable[..., list[Any]],
    indices: Any,
    num_tokens_fn: Callable[[int], int],
    num_tokens_vec: np.ndarray | None = None,
    max_tokens: float | None = None,
    *args: Any,
    **kwargs: Any,
) -> list[Any]:
    """``batch_by_size`` that checks the longest sentence first.

    Raises:
        UserError: it is longer than ``max_tokens``.
    """
    if max_tokens is not None and len(indices) > 0:
        sizes = num_tokens_vec if num_tokens_vec is not None else [num_tokens_fn(index) for index in indices]
        longest = int(np.argmax(sizes))
        require_room(max_tokens, int(sizes[longest]), f"longest sentence, number {int(indices[longest]) + 1}")
    return batch_by_size(indices, num_tokens_fn, num_tokens_vec, max_tokens, *args, **kwargs)


def longest_accepted(trainer: Trainer) -> int:
    """Return the longest training sentence that the model has positions for, in tokens; 0 if that is unknown."""
    if trainer.cfg.dataset.train_subset not in trainer.task.datasets:
        return 0
    dataset = trainer.task.dataset(trainer.cfg.dataset.train_subset)
    positions = utils.resolve_max_positions(trainer.task.max_positions(), trainer.model.max_positions())
    try:
        indices = np.arange(len(dataset))
        if positions is not None:
            indices, _ = dataset.filter_indices_by_size(indices, positions)
        return int(np.max(dataset.num_tokens_vec(indices), initial=0))
    except (AttributeError, NotImplementedError, TypeError):
        return 0


def train_on_all(get_train_iterator: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.get_train_iterator``, where fairseq leaves out what does not fit into ``--max-tokens``.

    Raises:
        UserError: a sentence within the model's limits is longer than that, or every sentence exceeds these limits.
    """
    try:
        return get_train_iterator(trainer, *args, **kwargs)
    except Exception as error:
        if not str(error).startswith("The dataset is empty"):
            raise
        raise UserError(
            "no training sentence is within --max-source-positions and --max-target-positions: use larger limits"
        ) from error
    finally:
        if trainer.cfg.dataset.max_tokens is not None:
            require_room(trainer.cfg.dataset.max_tokens, longest_accepted(trainer))


def apply() -> None:
    """Wrap the batcher, and the training iterator, which filters before it calls the batcher."""
    wrap(data_utils, "batch_by_size", batches_that_fit, order=10)
    wrap(Trainer, "get_train_iterator", train_on_all)
