"""An epoch that is resumed on another number of processes goes on with the batches that are left."""

from __future__ import annotations

import inspect

import pytest
from fairseq.data import EpochBatchIterator, FairseqDataset

EPOCH = 3


class Numbers(FairseqDataset):
    """A batch is the list of its sentences' numbers."""

    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        return 1000

    def collater(self, samples: list[int]) -> list[int]:
        return samples


def iterator(batches: int, shards: int, shard: int = 0, size: int = 2) -> EpochBatchIterator:
    made = [list(range(i * size, (i + 1) * size)) for i in range(batches)]
    data = Numbers()
    return EpochBatchIterator(data, data.collater, made, seed=1, num_shards=shards, shard_id=shard, epoch=EPOCH)


def state_after(taken: int, batches: int, shards: int) -> dict[str, object]:
    """What a checkpoint holds when each process has taken so many batches."""
    source = iterator(batches, shards)
    epoch = source.next_epoch_itr()
    for _ in range(taken):
        next(epoch)
    return source.state_dict()


def rest(state: dict[str, object], batches: int, shards: int, size: int = 2) -> list[list[list[int]]]:
    """The batches that each of the processes still takes."""
    found = []
    for shard in range(shards):
        resumed = iterator(batches, shards, shard, size)
        resumed.load_state_dict(state)
        found.append([batch for batch in resumed.next_epoch_itr() if batch])
    return found


def test_what_is_left_is_dealt_to_the_processes_that_are_there_now() -> None:
    order = [batch for batch in iterator(40, 1).next_epoch_itr()]
    for before, taken, now in ((1, 24, 4), (4, 6, 1), (2, 12, 8), (8, 3, 2), (2, 12, 2)):
        expected = [order[24:][shard::now] for shard in range(now)]
        assert rest(state_after(taken, 40, before), 40, now) == expected


def test_an_epoch_of_cut_batches_goes_on_at_the_same_share() -> None:
    """24 of 40 batches are 48 of 80 halves."""
    (left,) = rest(state_after(24, 40, 1), 80, 1, size=1)
    assert len(left) == 80 - 48
    # The share of the last batch is less than one batch of each process.
    assert [len(each) for each in rest(state_after(39, 40, 1), 40, 16)] == [1] * 8 + [0] * 8


def test_without_processes_in_the_checkpoint_it_is_as_in_stock() -> None:
    stock = {"version": 2, "epoch": EPOCH, "iterations_in_epoch": 10, "shuffle": True}
    assert [len(each) for each in rest(stock, 40, 2)] == [10, 10]
    assert [len(each) for each in rest({**stock, "iterations_in_epoch": 0}, 40, 2)] == [20, 20]


def test_stock_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    load = inspect.unwrap(EpochBatchIterator.load_state_dict)
    monkeypatch.setattr(EpochBatchIterator, "load_state_dict", load)
    with pytest.raises(RuntimeError, match="dataloader mismatch"):
        rest(state_after(24, 40, 1), 40, 4)
