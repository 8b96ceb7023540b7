"""Watching the training data itself does not change the training."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from fairseq.trainer import Trainer

from tests import toy


def checkpoints(data: Path, directory: Path) -> set[str]:
    """The epoch checkpoints of three epochs with validation on the training set."""
    flags = ("--max-epoch", "3", "--valid-subset", "train", "--max-tokens", "400", "--no-last-checkpoints")
    toy.train_toy(data, directory, *flags, validate=True)
    return {path.name for path in directory.glob("checkpoint[0-9].pt")}


def test_every_epoch_has_its_checkpoint(toy_data: Path, tmp_path: Path) -> None:
    assert checkpoints(toy_data, tmp_path) == {"checkpoint1.pt", "checkpoint2.pt", "checkpoint3.pt"}


def test_stock_skips_epochs(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "get_valid_iterator", inspect.unwrap(Trainer.get_valid_iterator))
    assert checkpoints(toy_data, tmp_path) != {"checkpoint1.pt", "checkpoint2.pt", "checkpoint3.pt"}
