"""A sentence that does not fit into ``--max-tokens`` is named with its length, never left out."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from fairseq.trainer import Trainer

from fairseq_plugins.errors import UserError
from tests import toy

LONGEST = 10
"""Nine words and the end mark."""


def test_training_names_length_and_limit(toy_data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"--max-tokens 7 is smaller .* has {LONGEST} tokens"):
        toy.train_toy(toy_data, tmp_path / "run", "--max-update", "1", "--max-tokens", "7")


def test_stock_training_leaves_sentences_out(
    toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Trainer, "get_train_iterator", inspect.unwrap(Trainer.get_train_iterator))
    toy.train_toy(toy_data, tmp_path / "run", "--max-update", "1", "--max-tokens", "7", "--no-save")
    assert "samples have invalid sizes and will be skipped" in caplog.text


def test_longer_sentences_may_be_left_out_on_purpose(toy_data: Path, tmp_path: Path) -> None:
    positions = ("--max-source-positions", "7", "--max-target-positions", "7")
    assert toy.train_toy(toy_data, tmp_path / "run", "--max-update", "1", "--max-tokens", "7", *positions).is_file()


def test_exact_fit_trains(toy_data: Path, tmp_path: Path) -> None:
    toy.train_toy(toy_data, tmp_path / "run", "--max-update", "1", "--max-tokens", str(LONGEST), "--no-save")


def test_validation_names_length_and_limit(toy_data: Path, tmp_path: Path) -> None:
    flags = ("--max-update", "1", "--max-tokens-valid", "5")
    with pytest.raises(UserError, match="--max-tokens 5 is smaller"):
        toy.train_toy(toy_data, tmp_path / "run", *flags, validate=True)


def test_generation_names_length_and_limit(toy_data: Path, toy_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"--max-tokens 6 is smaller .* has {LONGEST} tokens"):
        toy.translate_toy(toy_data, toy_checkpoint, tmp_path, "--max-tokens", "6")
