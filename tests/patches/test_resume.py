"""What a resumed training takes from checkpoints of others: of other numbers of processes, of stock, of another model.

That a resumed training is the uninterrupted one is in ``tests/faults/test_exact_resume.py``.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import EpochBatchIterator, FairseqDataset
from fairseq.optim import AMPOptimizer, FP16Optimizer
from torch import nn

from fairseq_plugins.patches.fp32_masters_on_resume import MASTERS, SCALER
from tests import toy
from tests.patches.conftest import Unpatch
from tests.refusals import refused

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
    left = []
    for shard in range(shards):
        resumed = iterator(batches, shards, shard, size)
        resumed.load_state_dict(state)
        left.append([batch for batch in resumed.next_epoch_itr() if batch])
    return left


def test_what_is_left_is_dealt_to_the_processes_that_are_there_now(unpatch: Unpatch) -> None:
    order = [batch for batch in iterator(40, 1).next_epoch_itr()]
    for before, taken, now in ((1, 24, 4), (4, 6, 1), (2, 12, 8), (8, 3, 2), (2, 12, 2)):
        expected = [order[24:][shard::now] for shard in range(now)]
        assert rest(state_after(taken, 40, before), 40, now) == expected
    # Of batches that are cut, 24 of 40 are 48 of 80 halves.
    assert [len(left) for left in rest(state_after(24, 40, 1), 80, 1, size=1)] == [80 - 48]
    # The share of the last batch is less than one batch of each process.
    assert [len(left) for left in rest(state_after(39, 40, 1), 40, 16)] == [1] * 8 + [0] * 8
    # A checkpoint of stock fairseq does not say of how many processes it is.
    stock = {"version": 2, "epoch": EPOCH, "iterations_in_epoch": 10, "shuffle": True}
    assert [len(left) for left in rest(stock, 40, 2)] == [10, 10]
    unpatch(EpochBatchIterator, "load_state_dict")
    with pytest.raises(RuntimeError, match="dataloader mismatch"):
        rest(state_after(24, 40, 1), 40, 4)


def test_master_weights_of_bf16_and_stock(
    toy_data: Path, tmp_path: Path, unpatch: Unpatch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is written here is loaded by stock; what stock wrote is loaded, with a warning."""

    def train(updates: int) -> dict[str, Any]:
        path = toy.train_toy(toy_data, tmp_path, "--bf16", "--max-update", str(updates), "--no-epoch-checkpoints")
        return torch.load(path, weights_only=True)["last_optimizer_state"]

    assert any(not torch.equal(master, master.bfloat16().float()) for master in train(4)[MASTERS])
    unpatch(FP16Optimizer, "state_dict", "load_state_dict")
    assert MASTERS not in train(5)
    monkeypatch.undo()
    with caplog.at_level(logging.WARNING):
        train(6)
    assert "no float32 master weights" in caplog.text


def test_master_weights_of_other_parameters_are_refused(tmp_path: Path) -> None:
    config = toy.parse_training(Path("nowhere"), tmp_path, "--bf16")
    optimizer = FP16Optimizer.build_optimizer(config, [nn.Parameter(torch.ones(4).bfloat16())])
    state = {**optimizer.state_dict(), MASTERS: [torch.ones(3)]}
    assert "other parameters, or in other parts" in refused(optimizer.load_state_dict, state)


def test_the_scale_of_amp_is_kept(tmp_path: Path) -> None:
    """A scaler without a GPU is switched off, so this one is put in its place; its tensors are on the CPU."""
    config = toy.parse_training(Path("nowhere"), tmp_path)
    states = []
    for scale in (4.0, 128.0):
        optimizer = AMPOptimizer.build_optimizer(config, [nn.Parameter(torch.ones(2))])
        assert SCALER not in optimizer.state_dict()
        optimizer._grad_scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        states.append(optimizer.state_dict())
    optimizer.load_state_dict(states[0])
    assert optimizer.scaler.get_scale() == 4.0
