"""Watching the training data itself does not change the training."""

from __future__ import annotations

from pathlib import Path

from fairseq.trainer import Trainer

from tests import toy
from tests.patches.conftest import Unpatch


def checkpoints(data: Path, directory: Path) -> set[str]:
    """The epoch checkpoints of three epochs with validation on the training set."""
    flags = ("--max-epoch", "3", "--valid-subset", "train", "--max-tokens", "400", "--no-last-checkpoints")
    toy.train_toy(data, directory, *flags, validate=True)
    return {path.name for path in directory.glob("checkpoint[0-9].pt")}


def test_every_epoch_has_its_checkpoint_but_in_stock(toy_data: Path, tmp_path: Path, unpatch: Unpatch) -> None:
    every = {"checkpoint1.pt", "checkpoint2.pt", "checkpoint3.pt"}
    assert checkpoints(toy_data, tmp_path / "ours") == every
    unpatch(Trainer, "get_valid_iterator")
    assert checkpoints(toy_data, tmp_path / "stock") != every
