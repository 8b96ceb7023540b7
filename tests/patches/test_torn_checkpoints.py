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


@pytest.mark.parametrize("patched", [True, False])
def test_a_copy_that_is_cut_off_leaves_the_last_checkpoint_whole_but_in_stock(
    patched: bool, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("--save-interval-updates", "2", "--no-epoch-checkpoints", "--max-update")
    last = toy.train_toy(toy_data, tmp_path, *flags, "2")
    before = last.read_bytes()

    def killed_half_way(source: Any, target: Any, **_: Any) -> None:
        content = Path(source).read_bytes()
        Path(target).write_bytes(content[: len(content) // 2])
        raise Killed

    monkeypatch.setattr(shutil, "copyfile", killed_half_way)
    if not patched:
        monkeypatch.setattr(checkpoint_utils.PathManager, "copy", staticmethod(inspect.unwrap(PathManager.copy)))
    with pytest.raises(Killed):
        toy.train_toy(toy_data, tmp_path, *flags, "4")
    if patched:
        assert last.read_bytes() == before
        assert not list(tmp_path.glob("*.tmp"))
    else:
        assert last.stat().st_size == (tmp_path / "checkpoint_1_4.pt").stat().st_size // 2


def test_a_copy_is_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "b").write_bytes(b"old and longer")
    assert PathManager.copy(str(tmp_path / "a"), str(tmp_path / "b"), overwrite=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"new", "b": b"new"}


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
