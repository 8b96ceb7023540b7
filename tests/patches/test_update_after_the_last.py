"""``--max-update`` and ``--max-epoch`` that are reached mean that nothing is left to train."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_plugins.checkpoints.files import num_updates
from tests import toy

UPDATES_PER_EPOCH = 12  # 120 sentences, ten a batch


def run(data: Path, directory: Path, *flags: str) -> int | None:
    """Train, and the updates that the last checkpoint has seen."""
    batches = ("--batch-size", "10", "--required-batch-size-multiple", "1", "--no-epoch-checkpoints")
    return num_updates(torch.load(toy.train_toy(data, directory, *batches, *flags), weights_only=True))


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param(1, marks=pytest.mark.slow),
        pytest.param(UPDATES_PER_EPOCH - 1, marks=pytest.mark.slow),
        UPDATES_PER_EPOCH,
        pytest.param(UPDATES_PER_EPOCH + 1, marks=pytest.mark.slow),
    ],
)
def test_a_training_that_is_at_its_end(limit: int, toy_data: Path, tmp_path: Path) -> None:
    flags = ("--max-update", str(limit))
    assert run(toy_data, tmp_path, *flags) == limit
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    assert run(toy_data, tmp_path, *flags) == limit
    assert run(toy_data, tmp_path, *flags, "--max-epoch", "5") == limit
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before
    assert run(toy_data, tmp_path, "--max-update", str(limit + 1)) == limit + 1


def test_a_last_epoch(toy_data: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert run(toy_data, tmp_path, "--max-epoch", "1") == UPDATES_PER_EPOCH


def test_stock_makes_one_update_more(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_utils, "load_checkpoint", inspect.unwrap(checkpoint_utils.load_checkpoint))
    for expected in (3, 4, 5):
        assert run(toy_data, tmp_path, "--max-update", "3") == expected
