"""Damaged checkpoints: what a kill truncated is removed and replaced, ``fsck`` names it, a full disk leaves nothing."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_plugins.checkpoints.damaged import is_damaged, restore_last_checkpoint
from fairseq_plugins.checkpoints.files import write_checkpoint
from fairseq_plugins.checkpoints.fsck import main
from tests import toy
from tests.processes import full_disk_after
from tests.refusals import refused
from tests.scripts.running import contents


def save(path: Path, updates: int, **state: Any) -> Path:
    state = {
        **(state or {"last_optimizer_state": {"state": {}}}),
        "model": {"w": torch.full((500,), float(updates))},
        "optimizer_history": [{"num_updates": updates}],
    }
    with open(path, "wb") as stream:
        torch.save(state, stream)
    return path


def test_the_beginning_of_a_checkpoint_is_damaged(tmp_path: Path) -> None:
    path = save(tmp_path / "checkpoint_last.pt", 1)
    assert not is_damaged(path)
    content = path.read_bytes()
    for size in (0, 1, 3, 4, 100, -1):
        path.write_bytes(content[:size])
        assert is_damaged(path), size


def test_the_last_is_restored_from_the_newest_by_updates_not_by_name(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint_1_900.pt", 900)
    newest = save(tmp_path / "checkpoint_best.pt", 1000)
    save(tmp_path / "checkpoint9.pt", 800)
    save(tmp_path / "checkpoint.avg10.pt", 1000, last_optimizer_state=None)  # an average, from which none goes on
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(newest.read_bytes()[:700])
    (tmp_path / "checkpoint_1_1000.pt.tmp").write_bytes(b"PK")
    messages = restore_last_checkpoint(tmp_path)
    assert last.read_bytes() == newest.read_bytes()
    assert messages == [f"{last}: truncated, removed", f"{last}: restored from checkpoint_best.pt"]
    names = ["checkpoint.avg10.pt", "checkpoint9.pt", "checkpoint_1_900.pt", "checkpoint_best.pt", "checkpoint_last.pt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_whole_and_foreign_files_are_left_alone(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint_1_20.pt", 20)
    save(tmp_path / "checkpoint_last.pt", 10)  # killed between the first name and its copy
    # The format of torch before 1.6, and a file that is no checkpoint.
    (tmp_path / "checkpoint_old.pt").write_bytes(b"\x80\x02\x8a\nl\xfc")
    (tmp_path / "notes.pt").write_bytes(b"")
    before = contents(tmp_path)
    assert restore_last_checkpoint(tmp_path) == restore_last_checkpoint(tmp_path / "absent") == []
    assert contents(tmp_path) == before
    # A kill before the first copy.
    (tmp_path / "checkpoint_last.pt").unlink()
    restore_last_checkpoint(tmp_path)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before["checkpoint_1_20.pt"]


def said(capsys: pytest.CaptureFixture[str], directory: Path, code: int) -> list[list[str]]:
    """The lines of ``fsck`` behind its header."""
    assert main([str(directory)]) == code
    return [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()][3:]


def test_fsck(toy_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--max-update", "4", "--save-interval-updates", "2", "--no-epoch-checkpoints")
    toy.train_toy(toy_data, tmp_path / "run", *flags)
    capsys.readouterr()
    assert said(capsys, tmp_path / "run", 0) == [
        ["checkpoint_1_2.pt", "2", "sound"],
        ["checkpoint_1_4.pt", "4", "sound"],
        ["checkpoint_last.pt", "4", "sound"],
        ["a", "training", "can continue from checkpoint_last.pt (4 updates)"],
    ]
    # A directory of fairseq-deep run has them one level down.
    (tmp_path / "of_run").mkdir()
    (tmp_path / "of_run" / "checkpoints").symlink_to(tmp_path / "run")
    assert said(capsys, tmp_path / "of_run", 0)[-1][-1] == "can continue from checkpoint_last.pt (4 updates)"
    # Damaged ones are named, and nothing is changed.
    damaged = Path(shutil.copytree(tmp_path / "run", tmp_path / "damaged"))
    last, flipped = damaged / "checkpoint_last.pt", bytearray((damaged / "checkpoint_1_4.pt").read_bytes())
    last.write_bytes(last.read_bytes()[:-100])
    flipped[len(flipped) // 2 : len(flipped) // 2 + 200] = bytes(200)
    (damaged / "checkpoint_1_4.pt").write_bytes(flipped)
    before = contents(damaged)
    first, second, third, end = said(capsys, damaged, 1)
    assert first == ["checkpoint_1_2.pt", "2", "sound"]
    assert second[:2] == ["checkpoint_1_4.pt", "-"]
    assert "have changed" in second[2]
    assert third == ["checkpoint_last.pt", "-", "truncated or not a checkpoint"]
    assert end == ["a", "training", "can continue from checkpoint_1_2.pt (2 updates)"]
    assert contents(damaged) == before
    # Weights alone cannot be resumed.
    (tmp_path / "weights").mkdir()
    save(tmp_path / "weights" / "weights.pt", 3)
    assert said(capsys, tmp_path / "weights", 0)[-1] == ["a", "training", "cannot continue from any of them"]


def test_a_disk_that_fills_in_the_middle_of_a_save_is_one_line(tmp_path: Path) -> None:
    output = tmp_path / "a.pt"
    with full_disk_after(100_000):
        line = refused(write_checkpoint, {"model": {"weight": torch.zeros(100_000)}}, output)
    assert line == f"{output}: cannot be written: File too large"
    assert list(tmp_path.iterdir()) == []
