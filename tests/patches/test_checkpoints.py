"""Checkpoints are written whole or not at all, and read without running anything: one clear line if they cannot be."""

import os
import pickle
import re
import shutil
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from fairseq.logging import meters

from fairseq_plugins.errors import UserError
from fairseq_plugins.integrity import num_updates, read_checkpoint
from fairseq_plugins.patches import weights_only_load
from tests import toy
from tests.processes import Killed, full_disk_after
from tests.refusals import line_of, refused


def test_stock_refuses_its_own_checkpoint_and_here_it_loads(toy_checkpoint: Path) -> None:
    foreign = torch.serialization.get_unsafe_globals_in_checkpoint
    torch.serialization.clear_safe_globals()
    try:
        with pytest.raises(pickle.UnpicklingError, match="Namespace"):
            torch.load(toy_checkpoint)
        assert {"argparse.Namespace", "numpy.ndarray", "numpy.dtype"} <= set(foreign(toy_checkpoint))
    finally:
        weights_only_load.apply()
    assert foreign(toy_checkpoint) == []
    state = checkpoint_utils.load_checkpoint_to_cpu(str(toy_checkpoint))
    assert state["cfg"].model.encoder_layers == 2
    assert state["optimizer_history"][-1]["num_updates"] == 4


@pytest.mark.parametrize("home", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_numbers_of_every_numpy_load(home: bytes, tmp_path: Path) -> None:
    path = tmp_path / "numbers.pt"
    stored = {"count": np.arange(3), "loss": np.float64(1.5), "best": np.float32(0.25), "n": np.int64(7)}
    # The old format keeps the names in plain sight, so another numpy's can be put in their place.
    torch.save(stored, path, _use_new_zipfile_serialization=False)
    written = path.read_bytes()
    assert b"numpy._core.multiarray" in written or b"numpy.core.multiarray" in written
    for name in (b"numpy._core.multiarray", b"numpy.core.multiarray"):
        written = written.replace(b"c" + name + b"\n", b"c" + home + b"\n")
    path.write_bytes(written)
    loaded = torch.load(path, weights_only=True)
    assert loaded["count"].tolist() == [0, 1, 2]
    assert (loaded["loss"], loaded["best"], loaded["n"]) == (1.5, 0.25, 7)


def test_meters_of_old_checkpoints_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meter = meters.AverageMeter(round=3)
    meter.update(2.5)
    monkeypatch.setattr(meters.AverageMeter, "__module__", "fairseq.meters")  # where they lived until 0.9
    torch.save({"train_meters": {"loss": meter}, "args": Namespace(arch="x")}, tmp_path / "old.pt")
    monkeypatch.undo()
    assert torch.load(tmp_path / "old.pt", weights_only=True)["train_meters"]["loss"].avg == 2.5


class Mark:
    """Unpickled without restriction, it makes a directory."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.place),)


def callable_inside(path: Path, good: bytes) -> None:
    torch.save({"model": {}, "extra_state": Mark(path.with_name("ran"))}, path)


BAD: dict[str, tuple[Callable[[Path, bytes], object], str]] = {
    "truncated": (lambda path, good: path.write_bytes(good[:-2000]), "truncated or not a checkpoint"),
    "empty": (lambda path, good: path.write_bytes(b""), "is empty"),
    "text": (lambda path, good: path.write_text("[model]\nlayers = 6\n" * 50), "truncated or not a checkpoint"),
    "pops an empty stack": (lambda path, good: path.write_text("the quick\n"), "truncated or not a checkpoint"),
    "not UTF-8": (lambda path, good: path.write_bytes(b"X\x03\0\0\0\xff\xff"), "truncated or not a checkpoint"),
    "directory": (lambda path, good: path.mkdir(), "Is a directory"),
    "callable": (callable_inside, "posix.mkdir|nt.mkdir"),
    "missing": (lambda path, good: None, "no such checkpoint"),
}
"""The maker of each file by name, and words of the line."""


def test_a_file_that_cannot_be_used_is_one_line_and_runs_nothing(toy_checkpoint: Path, tmp_path: Path) -> None:
    for name, (make, message) in BAD.items():
        path = tmp_path / name.replace(" ", "_") / "bad.pt"
        path.parent.mkdir()
        make(path, toy_checkpoint.read_bytes())
        line = str(line_of(checkpoint_utils.load_model_ensemble, [str(path)]))
        assert re.search(message, line), name
        assert str(path) in line
    assert not list(tmp_path.rglob("ran"))
    # Without restriction it would run.
    torch.load(tmp_path / "callable/bad.pt", weights_only=False)
    assert list(tmp_path.rglob("ran"))
    # An error in a good checkpoint stays as it is.
    with pytest.raises(TypeError):
        checkpoint_utils.load_checkpoint_to_cpu(str(toy_checkpoint), arg_overrides=3)


def test_a_named_file_that_is_missing_stops_the_training(toy_data: Path, tmp_path: Path) -> None:
    absent, one = str(tmp_path / "absent.pt"), ("--max-update", "1")
    for flag in ("--restore-file", "--continue-once", "--finetune-from-model"):
        with pytest.raises(UserError, match=f"{flag} .*absent.pt: no such file"):
            toy.train_toy(toy_data, tmp_path / "run", *one, flag, absent)
    with_reset = ("--finetune-from-model", str(toy_data / "dict.de.txt"), "--reset-optimizer")
    line = line_of(toy.train_toy, toy_data, tmp_path / "run", *one, *with_reset) or ""
    assert line.startswith("--finetune-from-model can not be set together with either --reset-optimizer")
    assert list((tmp_path / "run").glob("*.pt")) == []
    # The checkpoint that a training was tuned from is not read again.
    toy.train_toy(toy_data, tmp_path / "run", *one)
    resumed = toy.train_toy(toy_data, tmp_path / "run", "--max-update", "2", "--finetune-from-model", absent)
    assert num_updates(read_checkpoint(resumed)) == 2


def test_a_cut_copy_leaves_the_last_checkpoint(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("--save-interval-updates", "2", "--no-epoch-checkpoints", "--max-update")
    last = toy.train_toy(toy_data, tmp_path, *flags, "2")
    before = last.read_bytes()

    def killed_half_way(source: Any, target: Any, **_: Any) -> None:
        content = Path(source).read_bytes()
        Path(target).write_bytes(content[: len(content) // 2])
        raise Killed

    monkeypatch.setattr(shutil, "copyfile", killed_half_way)
    with pytest.raises(Killed):
        toy.train_toy(toy_data, tmp_path, *flags, "4")
    assert last.read_bytes() == before
    assert not list(tmp_path.glob("*.tmp"))


def test_a_checkpoint_is_not_written_through_a_link(tmp_path: Path) -> None:
    secret, place = tmp_path / "secret", tmp_path / "a.pt"
    secret.write_text("mine")
    for name in ("a.pt.tmp", "b.pt.tmp"):
        (tmp_path / name).symlink_to(secret)
    checkpoint_utils.torch_persistent_save({"a": 1}, str(place))
    PathManager.copy(str(place), str(tmp_path / "b.pt"), overwrite=True)
    assert secret.read_text() == "mine"
    assert place.read_bytes() == (tmp_path / "b.pt").read_bytes() != b""


def test_a_full_disk_leaves_no_partial_file_and_no_trace(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(time, "sleep", lambda _seconds: pytest.fail("it tried again"))
    path = tmp_path / "checkpoint1.pt"
    with full_disk_after(100_000):
        line = refused(checkpoint_utils.torch_persistent_save, {"model": torch.ones(100_000)}, str(path))
    assert line == f"checkpoint {path} cannot be written: File too large"
    assert list(tmp_path.iterdir()) == []
    assert caplog.records == []
    with pytest.raises(AttributeError, match="local object"):  # another error than a full disk
        checkpoint_utils.torch_persistent_save({"model": lambda: None}, str(path))
    assert list(tmp_path.iterdir()) == []
    checkpoint_utils.torch_persistent_save({"model": torch.ones(9)}, str(path))
    assert torch.load(path, weights_only=True)["model"].sum() == 9
