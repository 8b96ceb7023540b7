"""Damaged checkpoints: ``fsck`` names them, and a full disk leaves nothing."""

import shutil
from pathlib import Path

import pytest
import torch

from fairseq_plugins.checkpoints.fsck import main
from fairseq_plugins.integrity import write_checkpoint
from tests import toy
from tests.processes import full_disk_after
from tests.refusals import refused
from tests.scripts.running import contents


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
    state = {"model": {"w": torch.ones(5)}, "last_optimizer_state": {"state": {}}}
    write_checkpoint(state, tmp_path / "weights" / "weights.pt")
    assert said(capsys, tmp_path / "weights", 0)[-1] == ["a", "training", "cannot continue from any of them"]


def test_a_disk_that_fills_in_the_middle_of_a_save_is_one_line(tmp_path: Path) -> None:
    output = tmp_path / "a.pt"
    with full_disk_after(100_000):
        line = refused(write_checkpoint, {"model": {"weight": torch.zeros(100_000)}}, output)
    assert line == f"{output}: cannot be written: File too large"
    assert list(tmp_path.iterdir()) == []
