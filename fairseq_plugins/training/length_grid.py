"""``--length-grid RATIO``: training batches of few shapes, with little padding.

A batch of fairseq is as long as its longest sentence, so nearly every batch has a shape of its own. Here lengths go up
to the next value of a grid that grows by RATIO. Pairs are ordered by their longer side, which alone decides how many
fit into ``--max-tokens``, then by target minus source, on the grid; equals are shuffled. So batches of one longer side
have equally many sentences. ``--max-tokens`` counts lengths on the grid. Validation is as without.
"""

# No `from __future__ import annotations`: fairseq makes flags of the types of dataclass fields.

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import numpy as np
from fairseq.data import BaseWrapperDataset, FairseqDataset, LanguagePairDataset, MonolingualDataset
from fairseq.dataclass.configs import DatasetConfig
from fairseq.trainer import Trainer

from fairseq_plugins.errors import UserError
from fairseq_plugins.training.cuda_graphs import in_the_way
from fairseq_plugins.wrapping import replace_settings, replaced, wrap

logger = logging.getLogger(__name__)

WITH_GRAPHS = 1.15
"""Default with ``--cuda-graphs``, which replay shapes that occur again."""


@dataclass
class DatasetConfigWithGrid(DatasetConfig):
    """fairseq's settings of batches, and the grid."""

    length_grid: Optional[float] = field(
        default=None,
        metadata={
            "help": "pad training batches to lengths that grow by this ratio, so that shapes are few; at 1 a batch is "
            "as long as its longest sentence (default: 1.15 with --cuda-graphs, else 1)"
        },
    )


def grid(ratio: float, limit: int) -> Any:
    """Return the lengths from 1 to ``limit``, each ``ratio`` times the one before, in steps of 1, 2, 4, then 8."""
    values = [1]
    while values[-1] < limit:
        last = values[-1]
        # Tensor cores take multiples of 8; below, steps would be too long.
        multiple = next((size for size in (8, 4, 2) if size <= last * (ratio - 1)), 1)
        values.append(min(limit, max(last + 1, multiple * round(last * ratio / multiple))))
    return np.array(values, dtype=np.int32)


def round_up(lengths: Any, values: Any) -> Any:
    """Return the lengths on the grid ``values``; a length above all of them stays."""
    return np.maximum(lengths, values[np.searchsorted(values, lengths).clip(max=len(values) - 1)])


class OnGrid(BaseWrapperDataset):  # type: ignore[misc]
    """Pairs of sentences, or blocks of text, whose batches are on a grid.

    Args:
        dataset: a ``LanguagePairDataset`` or ``MonolingualDataset``.
        ratio: of the grid, above 1.
        limits: the largest length that fairseq accepts, a number or one for each side.
    """

    def __init__(self, dataset: Any, ratio: float, limits: Any) -> None:
        super().__init__(dataset)
        sides = np.atleast_2d(dataset.sizes.T)
        self.grids = [grid(ratio, int(limit)) for limit in np.minimum(sides.max(axis=1, initial=1), limits)]
        self.padded = np.stack(list(map(round_up, sides, self.grids)), axis=1)  # (sentences, sides)

    def num_tokens_vec(self, indices: Any) -> Any:
        """Return the size of each sentence for ``--max-tokens``."""
        return self.padded[indices].max(axis=1)

    def ordered_indices(self) -> Any:
        """Return all sentences in the order in which they are cut into batches."""
        order = np.random.permutation(len(self)) if self.dataset.shuffle else np.arange(len(self))
        lengths = self.padded[order]
        return order[np.lexsort((lengths[:, -1] - lengths[:, 0], lengths.max(axis=1)))]

    def batch_by_size(self, indices: Any, *args: Any, **kwargs: Any) -> Sequence[Any]:
        """Return the batches that fairseq makes of lengths on the grid."""
        batches: Sequence[Any] = FairseqDataset.batch_by_size(self, indices, *args, **kwargs)
        shapes = [(len(batch), *self.padded[batch].max(axis=0)) for batch in batches]
        padding = 1 - self.dataset.sizes[indices].sum() / max(1, sum(shape[0] * sum(shape[1:]) for shape in shapes))
        logger.info(f"length grid: {len(shapes)} batches of {len(set(shapes))} shapes, {padding:.1%} of them pads")
        return batches

    def collater(self, samples: Sequence[dict[str, Any]]) -> Any:
        """Merge ``samples``, padded to the grid's lengths of the longest."""
        extra = int(getattr(self.dataset, "add_bos_token", False))  # in samples, but not in sizes
        lengths = {
            side: int(round_up(max((len(sample[side]) for sample in samples), default=0) - extra, values)) + extra
            for side, values in zip(("source", "target"), self.grids, strict=False)
        }
        if isinstance(self.dataset, LanguagePairDataset):
            return self.dataset.collater(samples, pad_to_length=lengths)
        dataset = copy.copy(self.dataset)
        dataset.fixed_pad_length = max(lengths["source"], dataset.fixed_pad_length or 0)
        return dataset.collater(samples)


def train_on_grid(get_train_iterator: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.get_train_iterator`` with batches on the grid; a UserError for other data, or for fairseq's buckets."""
    stated, task, make = trainer.cfg.dataset.length_grid, trainer.task, trainer.task.get_batch_iterator
    ratio = stated or (WITH_GRAPHS if trainer.cfg.common.cuda_graphs and not in_the_way(trainer) else 1)

    def make_on_grid(*, dataset: Any, max_positions: Any, max_tokens: Any, **settings: Any) -> Any:
        if not isinstance(dataset, (LanguagePairDataset, MonolingualDataset)) or dataset.get_batch_shapes() is not None:
            if stated is None:
                return make(dataset=dataset, max_positions=max_positions, max_tokens=max_tokens, **settings)
            raise UserError("--length-grid is for sentence pairs and language models, without --num-batch-buckets")
        limits = np.minimum(max_positions or np.inf, max_tokens or np.inf)
        # fairseq keeps the iterator of each data set.
        known = [one for one in task.dataset_to_epoch_iter if isinstance(one, OnGrid) and one.dataset is dataset]
        on_grid = known[0] if known else OnGrid(dataset, ratio, limits)
        return make(dataset=on_grid, max_positions=max_positions, max_tokens=max_tokens, **settings)

    with replaced(task, get_batch_iterator=make if ratio == 1 else make_on_grid):
        return get_train_iterator(trainer, *args, **kwargs)


replace_settings("dataset", DatasetConfigWithGrid)
wrap(Trainer, "get_train_iterator", train_on_grid, order=10)
