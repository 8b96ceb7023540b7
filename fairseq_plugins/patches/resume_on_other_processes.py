"""A training resumed on another number of processes skips a part of its epoch, repeats one, or stops.

A checkpoint from within an epoch stores the number of batches of one process, but not their share of it. With
more processes, each may have fewer batches than that: "Cannot resume training due to dataloader mismatch".
https://github.com/facebookresearch/fairseq/issues/3638
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.data.iterators import EpochBatchIterator


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


WRAPPED = ((EpochBatchIterator, "state_dict", state_with_share), (EpochBatchIterator, "load_state_dict", load_share))
