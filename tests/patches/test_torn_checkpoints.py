"""A copy of a checkpoint that is cut off leaves what was there before."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path
from typing import Any

import pytest
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from tests import toy


class Killed(BaseException):
    """What SIGKILL is to the program: nothing handles it."""


@pytest.fixture
def killed_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every copy stops after half of its bytes."""

    def copyfile(source: Any, target: Any, **_: Any) -> None:
        content = Path(source).read_bytes()
        Path(target).write_bytes(content[: len(content) // 2])
        raise Killed

    monkeypatch.setattr(shutil, "copyfile", copyfile)


def saved_then_killed(data: Path, directory: Path) -> Path:
    """A training that saved once, and was killed while it copied its second checkpoint; the last checkpoint's path."""
    flags = ("--save-interval-updates", "2", "--no-epoch-checkpoints")
    last = toy.train_toy(data, directory, *flags, "--max-update", "2")
    shutil.copy2(last, directory / "before")
    return last


@pytest.fixture
def training(toy_data: Path, tmp_path: Path) -> Path:
    return saved_then_killed(toy_data, tmp_path)


def save_again(data: Path, directory: Path) -> None:
    flags = ("--save-interval-updates", "2", "--no-epoch-checkpoints", "--max-update", "4")
    with pytest.raises(Killed):
        toy.train_toy(data, directory, *flags)


def test_the_last_checkpoint_is_whole(toy_data: Path, training: Path, killed_half_way: None) -> None:
    save_again(toy_data, training.parent)
    assert training.read_bytes() == (training.parent / "before").read_bytes()
    assert not list(training.parent.glob("*.tmp"))


def test_stock_leaves_half_of_it(
    toy_data: Path, training: Path, killed_half_way: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_utils.PathManager, "copy", staticmethod(inspect.unwrap(PathManager.copy)))
    save_again(toy_data, training.parent)
    newest = training.parent / "checkpoint_1_4.pt"
    assert training.stat().st_size == newest.stat().st_size // 2


def test_a_copy_is_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "b").write_bytes(b"old and longer")
    assert PathManager.copy(str(tmp_path / "a"), str(tmp_path / "b"), overwrite=True)
    assert (tmp_path / "b").read_bytes() == b"new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
