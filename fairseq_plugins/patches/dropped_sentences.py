"""Sentences are silently left out: the last ones of a data set, and those of a training that exceed ``--max-tokens``.

* ``batch_by_size`` throws its last batch away unless its size is a multiple of ``--required-batch-size-multiple`` (8 by
  default): of 60 test sentences ``fairseq-generate`` translates 56, and 5 sentences end in a ZeroDivisionError.
  https://github.com/facebookresearch/fairseq/issues/5036
* Validation and generation stop at a sentence longer than ``--max-tokens``. Training takes it there for a limit of the
  model, and warns among many other lines. https://github.com/facebookresearch/fairseq/issues/2650
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from fairseq import utils
from fairseq.data import data_utils
from fairseq.trainer import Trainer

from fairseq_plugins.wrapping import replaced


def keep_last_batch(batch_by_size: Callable[..., list[Any]], indices: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """``batch_by_size`` that appends the dropped batch; every other batch is unchanged.

    The batches cover ``indices`` in order, so the sentences missing at the end are the dropped batch, which respects
    ``max_tokens`` and ``max_sentences`` like the others. Fixed shapes drop nothing.
    """
    if not isinstance(indices, np.ndarray):
        indices = np.fromiter(indices, dtype=np.int64, count=-1)
    if len(indices) == 0:
        return []
    batches = batch_by_size(indices, *args, **kwargs)
    kept = sum(len(batch) for batch in batches)
    return batches if kept == len(indices) else [*batches, indices[kept:]]


def train_on_all(get_train_iterator: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.get_train_iterator``, where ``--max-tokens`` is the last of the limits: it stops as the others do."""
    resolve = utils.resolve_max_positions
    with replaced(utils, resolve_max_positions=lambda *limits: resolve(*limits[:-1])):
        return get_train_iterator(trainer, *args, **kwargs)


WRAPPED = ((data_utils, "batch_by_size", keep_last_batch, 20), (Trainer, "get_train_iterator", train_on_all))
