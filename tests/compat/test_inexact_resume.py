"""A training that was stopped and resumed is the uninterrupted one: same batches, same weights, bit for bit."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.translation import TranslationTask

from tests import toy

MAX_UPDATES = 30
UPDATES_PER_EPOCH = 12


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The sentence numbers of every training batch, in order of use."""
    batches: list[list[int]] = []
    train_step = TranslationTask.train_step

    def watch(self, sample, model, *args, **kwargs):  # type: ignore[no-untyped-def]
        batches.append(sample["id"].tolist())
        return train_step(self, sample, model, *args, **kwargs)

    monkeypatch.setattr(TranslationTask, "train_step", watch)
    return batches


def run(data: Path, directory: Path, updates: int) -> Path:
    flags = ("--max-update", str(updates), "--batch-size", "10", "--required-batch-size-multiple", "1")
    return toy.train_toy(data, directory, *flags, "--no-epoch-checkpoints")


def stopped_and_resumed(data: Path, directory: Path, stop: int) -> Path:
    run(data, directory, stop)
    return run(data, directory, MAX_UPDATES)


@pytest.mark.parametrize("stop", [UPDATES_PER_EPOCH, UPDATES_PER_EPOCH + 5, 2 * UPDATES_PER_EPOCH])
def test_resumed_equals_uninterrupted(stop: int, toy_data: Path, tmp_path: Path, seen: list[list[int]]) -> None:
    whole = torch.load(run(toy_data, tmp_path / "whole", MAX_UPDATES), weights_only=True)
    uninterrupted = list(seen)
    assert len(uninterrupted) == MAX_UPDATES
    assert sorted(i for batch in uninterrupted[:UPDATES_PER_EPOCH] for i in batch) == list(range(120))
    seen.clear()
    halves = torch.load(stopped_and_resumed(toy_data, tmp_path / "halves", stop), weights_only=True)
    assert seen == uninterrupted
    for name, weight in whole["model"].items():
        assert torch.equal(weight, halves["model"][name]), name
    moments = whole["last_optimizer_state"]["state"]
    for index, state in halves["last_optimizer_state"]["state"].items():
        assert torch.equal(state["exp_avg_sq"], moments[index]["exp_avg_sq"])


def test_stock_resume_sees_other_batches(
    toy_data: Path, tmp_path: Path, seen: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(toy_data, tmp_path / "whole", MAX_UPDATES)
    uninterrupted = list(seen)
    seen.clear()
    monkeypatch.setattr(FairseqTask, "get_batch_iterator", inspect.unwrap(FairseqTask.get_batch_iterator))
    stopped_and_resumed(toy_data, tmp_path / "halves", UPDATES_PER_EPOCH + 5)
    assert seen[:UPDATES_PER_EPOCH] == uninterrupted[:UPDATES_PER_EPOCH]
    assert seen != uninterrupted
