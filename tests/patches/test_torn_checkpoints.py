"""A copy of a checkpoint that is cut off leaves what was there before."""

from __future__ import annotations

import errno
import inspect
import io
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_plugins.errors import UserError
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


def test_a_full_disk_leaves_no_partial_file_and_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(io.BytesIO):
        def write(self, _data: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(time, "sleep", lambda _seconds: pytest.fail("it tried again"))
    path = tmp_path / "checkpoint1.pt"

    def full(name: str, mode: str) -> Full:
        Path(name).write_bytes(b"the beginning")
        return Full()

    with monkeypatch.context() as patched:
        patched.setattr(PathManager, "open", full)
        with pytest.raises(UserError, match=f"^checkpoint {path} cannot be written: No space left on device$"):
            checkpoint_utils.torch_persistent_save({"model": torch.ones(9)}, str(path))
    assert list(tmp_path.iterdir()) == []
    assert caplog.records == []
    checkpoint_utils.torch_persistent_save({"model": torch.ones(9)}, str(path))
    assert torch.load(path, weights_only=True)["model"].sum() == 9


def test_another_error_is_not_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match="local object"):
        checkpoint_utils.torch_persistent_save({"model": lambda: None}, str(tmp_path / "checkpoint1.pt"))
    assert list(tmp_path.iterdir()) == []
