"""``--max-update`` and ``--max-epoch`` that are reached mean that nothing is left to train."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_plugins.checkpoints.files import num_updates
from tests import toy
from tests.patches.conftest import Unpatch

UPDATES_PER_EPOCH = 12  # 120 sentences, ten a batch


def run(data: Path, directory: Path, *flags: str) -> int | None:
    """Train, and the updates that the last checkpoint has seen."""
    batches = ("--batch-size", "10", "--required-batch-size-multiple", "1", "--no-epoch-checkpoints")
    return num_updates(torch.load(toy.train_toy(data, directory, *batches, *flags), weights_only=True))


slow = pytest.mark.slow


@pytest.mark.parametrize("limit", [pytest.param(1, marks=slow), 12, pytest.param(13, marks=slow)])
def test_a_training_that_is_at_its_end(limit: int, toy_data: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert run(toy_data, tmp_path, "--max-update", str(limit)) == limit
    assert run(toy_data, tmp_path, "--max-update", str(limit + 1)) == limit + 1


def test_a_last_epoch(toy_data: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert run(toy_data, tmp_path, "--max-epoch", "1") == UPDATES_PER_EPOCH


def test_stock_makes_one_update_more(toy_data: Path, tmp_path: Path, unpatch: Unpatch) -> None:
    unpatch(checkpoint_utils, "load_checkpoint")
    assert [run(toy_data, tmp_path, "--max-update", "3") for _ in range(2)] == [3, 4]
