"""A training that was stopped and resumed is the uninterrupted one: same batches, same weights, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.translation import TranslationTask

from tests import toy
from tests.patches.conftest import Unpatch

UPDATES_PER_EPOCH = 12
UPDATES = 30
Run = Callable[..., tuple[list[list[int]], dict[str, Any]]]


@pytest.fixture
def run(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Train up to each of these numbers of updates: the sentences of every batch in order, and the checkpoint."""
    seen: list[list[int]] = []
    train_step = TranslationTask.train_step

    def watch(self, sample, model, *args, **kwargs):  # type: ignore[no-untyped-def]
        seen.append(sample["id"].tolist())
        return train_step(self, sample, model, *args, **kwargs)

    monkeypatch.setattr(TranslationTask, "train_step", watch)

    def train(*stops: int) -> tuple[list[list[int]], dict[str, Any]]:
        seen.clear()
        directory = tmp_path / "-".join(map(str, stops))
        for stop in stops:
            flags = ("--max-update", str(stop), "--batch-size", "10", "--required-batch-size-multiple", "1")
            path = toy.train_toy(toy_data, directory, *flags, "--no-epoch-checkpoints")
        return seen.copy(), torch.load(path, weights_only=True)

    return train


slow = pytest.mark.slow


@pytest.mark.parametrize("stop", [pytest.param(12, marks=slow), 17, pytest.param(24, marks=slow)])
def test_resumed_equals_uninterrupted_but_in_stock(stop: int, run: Run, unpatch: Unpatch) -> None:
    batches, whole = run(UPDATES)
    assert len(batches) == UPDATES
    assert sorted(i for batch in batches[:UPDATES_PER_EPOCH] for i in batch) == list(range(120))
    seen, halves = run(stop, UPDATES)
    assert seen == batches
    for name, weight in whole["model"].items():
        assert torch.equal(weight, halves["model"][name]), name
    moments = whole["last_optimizer_state"]["state"]
    for index, state in halves["last_optimizer_state"]["state"].items():
        assert torch.equal(state["exp_avg_sq"], moments[index]["exp_avg_sq"])

    unpatch(FairseqTask, "get_batch_iterator")
    stock, _ = run(stop + 1, UPDATES)
    assert stock[:UPDATES_PER_EPOCH] == batches[:UPDATES_PER_EPOCH]
    assert stock != batches
