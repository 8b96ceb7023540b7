"""A training that was stopped and resumed is the uninterrupted one: same batches, same weights, bit for bit."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.translation import TranslationTask

from tests import toy

MAX_UPDATES = 30
UPDATES_PER_EPOCH = 12


def watched(patch: pytest.MonkeyPatch) -> list[list[int]]:
    """The sentence numbers of every training batch from now on, in order of use."""
    batches: list[list[int]] = []
    train_step = TranslationTask.train_step

    def watch(self, sample, model, *args, **kwargs):  # type: ignore[no-untyped-def]
        batches.append(sample["id"].tolist())
        return train_step(self, sample, model, *args, **kwargs)

    patch.setattr(TranslationTask, "train_step", watch)
    return batches


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    return watched(monkeypatch)


def run(data: Path, directory: Path, updates: int) -> Path:
    flags = ("--max-update", str(updates), "--batch-size", "10", "--required-batch-size-multiple", "1")
    return toy.train_toy(data, directory, *flags, "--no-epoch-checkpoints")


def stopped_and_resumed(data: Path, directory: Path, stop: int) -> Path:
    run(data, directory, stop)
    return run(data, directory, MAX_UPDATES)


@pytest.fixture(scope="module")
def uninterrupted(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[list[int]], dict[str, Any]]:
    """The batches of a training from end to end, and its checkpoint."""
    with pytest.MonkeyPatch.context() as patch:
        batches = watched(patch)
        path = run(toy_data, tmp_path_factory.mktemp("whole"), MAX_UPDATES)
    return batches, torch.load(path, weights_only=True)


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(UPDATES_PER_EPOCH, marks=pytest.mark.slow),
        UPDATES_PER_EPOCH + 5,
        pytest.param(2 * UPDATES_PER_EPOCH, marks=pytest.mark.slow),
    ],
)
def test_resumed_equals_uninterrupted(
    stop: int,
    toy_data: Path,
    tmp_path: Path,
    uninterrupted: tuple[list[list[int]], dict[str, Any]],
    seen: list[list[int]],
) -> None:
    batches, whole = uninterrupted
    assert len(batches) == MAX_UPDATES
    assert sorted(i for batch in batches[:UPDATES_PER_EPOCH] for i in batch) == list(range(120))
    halves = torch.load(stopped_and_resumed(toy_data, tmp_path, stop), weights_only=True)
    assert seen == batches
    for name, weight in whole["model"].items():
        assert torch.equal(weight, halves["model"][name]), name
    moments = whole["last_optimizer_state"]["state"]
    for index, state in halves["last_optimizer_state"]["state"].items():
        assert torch.equal(state["exp_avg_sq"], moments[index]["exp_avg_sq"])


def test_stock_resume_sees_other_batches(
    toy_data: Path,
    tmp_path: Path,
    uninterrupted: tuple[list[list[int]], dict[str, Any]],
    seen: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches, _ = uninterrupted
    monkeypatch.setattr(FairseqTask, "get_batch_iterator", inspect.unwrap(FairseqTask.get_batch_iterator))
    stopped_and_resumed(toy_data, tmp_path, UPDATES_PER_EPOCH + 5)
    assert seen[:UPDATES_PER_EPOCH] == batches[:UPDATES_PER_EPOCH]
    assert seen != batches
