"""A training that is resumed is the uninterrupted one: batches, master weights, loss scale, share of the epoch."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import EpochBatchIterator, FairseqDataset
from fairseq.optim import AMPOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor, nn

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.fp32_masters_on_resume import COUNTS, MASTERS, SCALER
from tests import toy
from tests.faults.exact import differences, state_of
from tests.patches.conftest import Unpatch, watched

UPDATES_PER_EPOCH = 12
UPDATES = 30
slow = pytest.mark.slow

# --- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [pytest.param(12, marks=slow), 17, pytest.param(24, marks=slow)])
def test_resumed_equals_uninterrupted_but_in_stock(
    stop: int, toy_data: Path, tmp_path: Path, unpatch: Unpatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watched(monkeypatch, "train_step")

    def run(*stops: int) -> tuple[list[list[int]], Any]:
        """Train up to each of these numbers of updates: the sentences of every batch in order, and the last state."""
        seen.clear()
        directory = tmp_path / "-".join(map(str, stops))
        for stop in stops:
            flags = ("--max-update", str(stop), "--batch-size", "10", "--required-batch-size-multiple", "1")
            path = toy.train_toy(toy_data, directory, *flags, "--no-epoch-checkpoints")
        return seen.copy(), state_of(path)

    batches, whole = run(UPDATES)
    assert len(batches) == UPDATES
    assert sorted(i for batch in batches[:UPDATES_PER_EPOCH] for i in batch) == list(range(120))
    resumed, halves = run(stop, UPDATES)
    assert resumed == batches
    assert differences(whole, halves) == []
    unpatch(FairseqTask, "get_batch_iterator")
    stock, _ = run(stop + 1, UPDATES)
    assert stock[:UPDATES_PER_EPOCH] == batches[:UPDATES_PER_EPOCH]
    assert stock != batches


# --- another number of processes --------------------------------------------------------------------------------------

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


# --- half precision ---------------------------------------------------------------------------------------------------

FORMS = {
    "flat": ("--fp16",),
    "separate": ("--fp16", "--fp16-no-flatten-grads"),
    "memory_efficient": ("--memory-efficient-fp16",),
    "bf16": ("--bf16",),
}


def train(data: Path, directory: Path, *stops: int) -> dict[str, Any]:
    for updates in stops:
        path = toy.train_toy(data, directory, "--bf16", "--max-update", str(updates), "--no-epoch-checkpoints")
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state


def masters(state: dict[str, Any]) -> list[Tensor]:
    return list(state["last_optimizer_state"][MASTERS])


def test_a_training_in_bf16_goes_on_with_its_master_weights_but_in_stock(
    toy_data: Path, tmp_path: Path, unpatch: Unpatch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What stock wrote is loaded, with a warning; what is written here is loaded by stock."""
    whole = train(toy_data, tmp_path / "whole", 9)
    parts = train(toy_data, tmp_path / "parts", 4, 9)
    assert differences((whole["model"], masters(whole)), (parts["model"], masters(parts))) == []
    assert any(not torch.equal(master, master.bfloat16().float()) for master in masters(whole))

    unpatch(FP16Optimizer, "state_dict")
    assert MASTERS not in train(toy_data, tmp_path / "old", 4)["last_optimizer_state"]
    monkeypatch.undo()
    with caplog.at_level(logging.WARNING):
        by_ours = train(toy_data, tmp_path / "old", 9)
    assert "no float32 master weights" in caplog.text
    train(toy_data, tmp_path / "new", 4)
    monkeypatch.setattr(FP16Optimizer, "load_state_dict", inspect.unwrap(FP16Optimizer.load_state_dict))
    by_stock = train(toy_data, tmp_path / "new", 9)
    for resumed in (by_ours, by_stock):
        assert differences(whole["model"], resumed["model"])


def built(form: str, seed: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[nn.Parameter]]:
    """An optimizer in half precision; fairseq makes flat tensors on the current GPU, here on the CPU."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    config = toy.parse_training(Path("nowhere"), directory, *FORMS[form], "--fp16-scale-window", "3")
    torch.manual_seed(seed)
    kind = torch.bfloat16 if form == "bf16" else torch.float16
    weights = [nn.Parameter(torch.randn(size).to(kind)) for size in ((4, 3), (5,))]
    wrapper = MemoryEfficientFP16Optimizer if form == "memory_efficient" else FP16Optimizer
    return wrapper.build_optimizer(config, weights), weights


def updated(optimizer: Any, weights: list[nn.Parameter], numbers: range) -> list[float]:
    """Make updates; the fourth overflows. The loss scale after each."""
    scales = []
    for number in numbers:
        torch.manual_seed(number)
        optimizer.zero_grad()
        loss = sum((weight.float() * torch.randn(weight.shape)).sum() for weight in weights)
        optimizer.backward(loss * (float("inf") if number == 4 and optimizer.scaler else 1.0))
        try:
            optimizer.clip_grad_norm(1.0)
            optimizer.step()
        except OverflowError:
            pass
        scales.append(optimizer.scaler.loss_scale if optimizer.scaler else 1.0)
    return scales


@pytest.mark.parametrize("form", FORMS)
def test_an_optimizer_continues_bit_for_bit(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer, weights = built(form, 1, tmp_path, monkeypatch)
    updated(optimizer, weights, range(6))
    torch.save(optimizer.state_dict(), tmp_path / "state")
    half = [weight.detach().clone() for weight in weights]
    expected = updated(optimizer, weights, range(6, 14))

    other, others = built(form, 2, tmp_path, monkeypatch)
    for weight, value in zip(others, half, strict=True):
        weight.data.copy_(value)
    state = torch.load(tmp_path / "state", weights_only=True)
    other.load_state_dict(state)
    assert updated(other, others, range(6, 14)) == expected
    assert all(torch.equal(*pair) for pair in zip(weights, others, strict=True))
    if optimizer.scaler is not None:
        assert [getattr(other.scaler, name) for name in COUNTS] == [getattr(optimizer.scaler, name) for name in COUNTS]
        assert len(set(expected)) > 1
    if form == "flat":
        state[MASTERS] = [master[:3] for master in state[MASTERS]]
        with pytest.raises(UserError, match="do not match the model or --fp16-no-flatten-grads"):
            other.load_state_dict(state)


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
