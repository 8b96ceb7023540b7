"""A training resumed on another number of processes skips a part of its epoch, repeats one, or stops.

A checkpoint from within an epoch holds how many batches one process has taken, whatever share of the epoch that is.
With more processes, it may be more than each of them has: "Cannot resume training due to dataloader mismatch".
https://github.com/facebookresearch/fairseq/issues/3638
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.data.iterators import EpochBatchIterator

from fairseq_plugins.patches.wrapping import wrap


def state_with_share(state_dict: Callable[..., dict[str, Any]], iterator: EpochBatchIterator) -> dict[str, Any]:
    """``EpochBatchIterator.state_dict`` that also tells of how many batches, and among how many processes."""
    return {**state_dict(iterator), "batches": len(iterator.frozen_batches), "processes": iterator.num_shards}


def load_share(load: Callable[..., None], iterator: EpochBatchIterator, state: dict[str, Any]) -> None:
    """``EpochBatchIterator.load_state_dict`` that goes to the same share of the epoch.

    Batches that were cut for the number of processes are counted by that share, too.
    """
    taken = state.get("iterations_in_epoch", 0)
    if taken > 0 and "processes" in state:
        old, new = state["batches"] * iterator.num_shards, len(iterator.frozen_batches) * state["processes"]
        # An epoch that is not at its end goes on, with its last batch at least.
        state = {**state, "iterations_in_epoch": min(round(taken * new / old), len(iterator) - 1)}
    load(iterator, state)


def apply() -> None:
    """Wrap what goes into a checkpoint and what comes out of it."""
    wrap(EpochBatchIterator, "state_dict", state_with_share)
    wrap(EpochBatchIterator, "load_state_dict", load_share)
