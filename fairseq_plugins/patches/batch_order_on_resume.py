"""A resumed training sees different batches from those of the uninterrupted one, from the second epoch on.

An uninterrupted run makes its batches once, from the seed of its first epoch, and then only shuffles them. A run
resumed in epoch 2 makes them from the seed of epoch 2: sentences repeat and others are skipped.
The reuse: https://github.com/facebookresearch/fairseq/issues/1156 and https://github.com/facebookresearch/fairseq/pull/2525
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fairseq.tasks.fairseq_task import FairseqTask


def batches_of_first_epoch(get_batch_iterator: Callable[..., Any], task: FairseqTask, *args: Any, **kwargs: Any) -> Any:
    """Make reusable batches as epoch 1 makes them, in any epoch, then go to that epoch.

    This is what an uninterrupted run does, so such a run is not changed at all. Data sets that differ from epoch to
    epoch, sharded data and ``--update-epoch-batch-itr True`` make new batches in every epoch, resumed or not, and are
    not changed.
    """
    call = inspect.signature(get_batch_iterator).bind(task, *args, **kwargs)
    call.apply_defaults()
    given = call.arguments
    dataset, epoch = given["dataset"], given["epoch"]
    made_anew = given["disable_iterator_cache"] or given["update_epoch_batch_itr"]
    if epoch <= 1 or made_anew or not task.can_reuse_epoch_itr(dataset) or dataset in task.dataset_to_epoch_iter:
        return get_batch_iterator(*call.args, **call.kwargs)
    given["epoch"] = 1
    iterator = get_batch_iterator(*call.args, **call.kwargs)
    iterator.epoch = epoch
    dataset.set_epoch(epoch)
    return iterator


WRAPPED = ((FairseqTask, "get_batch_iterator", batches_of_first_epoch),)
"""The method by which all tasks except the multi-corpus ones make their iterators."""
