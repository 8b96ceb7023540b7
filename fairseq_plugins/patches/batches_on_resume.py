"""A resumed training sees different batches from epoch 2 on, or on more or fewer processes.

* An uninterrupted run makes its batches once, from the seed of its first epoch, and then only shuffles them. A run
  resumed in epoch 2 makes them from the seed of epoch 2: sentences repeat and others are skipped.
  https://github.com/facebookresearch/fairseq/issues/1156 and https://github.com/facebookresearch/fairseq/pull/2525
* A checkpoint from within an epoch stores the number of batches of one process, but not their share of the epoch. With
  more processes, each may have fewer batches than that: "Cannot resume training due to dataloader mismatch".
  https://github.com/facebookresearch/fairseq/issues/3638
"""

import inspect
from collections.abc import Callable
from typing import Any

from fairseq.data.iterators import EpochBatchIterator
from fairseq.tasks.fairseq_task import FairseqTask


def batches_of_first_epoch(get_batch_iterator: Callable[..., Any], task: FairseqTask, *args: Any, **kwargs: Any) -> Any:
    """Make reusable batches as epoch 1 makes them, in any epoch, then go to that epoch.

    An uninterrupted run does the same, so this patch does not change it at all. Data sets that differ from epoch to
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


def state_with_share(state_dict: Callable[..., dict[str, Any]], iterator: EpochBatchIterator) -> dict[str, Any]:
    """``EpochBatchIterator.state_dict`` that also stores the total of batches and the number of processes."""
    return {**state_dict(iterator), "batches": len(iterator.frozen_batches), "processes": iterator.num_shards}


def load_share(load: Callable[..., None], iterator: EpochBatchIterator, state: dict[str, Any]) -> None:
    """``EpochBatchIterator.load_state_dict`` that goes to the same share of the epoch.

    Batches that were split for the number of processes are also counted by that share.
    """
    taken = state.get("iterations_in_epoch", 0)
    if taken > 0 and "processes" in state:
        old, new = state["batches"] * iterator.num_shards, len(iterator.frozen_batches) * state["processes"]
        # An unfinished epoch continues with at least its last batch.
        state = {**state, "iterations_in_epoch": min(round(taken * new / old), len(iterator) - 1)}
    load(iterator, state)


WRAPPED = (
    # All tasks except the multi-corpus ones make their iterators with this method.
    (FairseqTask, "get_batch_iterator", batches_of_first_epoch),
    (EpochBatchIterator, "state_dict", state_with_share),
    (EpochBatchIterator, "load_state_dict", load_share),
)
