"""``fairseq-deep fsck``: what it says of a directory, and its exit codes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from fairseq_plugins.checkpoints.fsck import main
from tests import toy


@pytest.fixture(scope="module")
def training(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    flags = ("--max-update", "4", "--save-interval-updates", "2", "--no-epoch-checkpoints")
    toy.train_toy(toy_data, directory, *flags)
    return directory


def lines(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]


def test_a_sound_directory(training: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(training)]) == 0
    said = lines(capsys)
    assert said[3:] == [
        ["checkpoint_1_2.pt", "2", "sound"],
        ["checkpoint_1_4.pt", "4", "sound"],
        ["checkpoint_last.pt", "4", "sound"],
        ["a", "training", "can continue from checkpoint_last.pt (4 updates)"],
    ]


def test_damaged_ones_are_named_and_the_newest_sound_one_is_offered(
    training: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "run"
    shutil.copytree(training, directory)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    before["checkpoint_last.pt"] = before["checkpoint_last.pt"][:-100]
    middle = len(before["checkpoint_1_4.pt"]) // 2
    flipped = bytearray(before["checkpoint_1_4.pt"])
    flipped[middle : middle + 200] = bytes(200)
    before["checkpoint_1_4.pt"] = bytes(flipped)
    for name, content in before.items():
        (directory / name).write_bytes(content)
    assert main([str(directory)]) == 1
    said = lines(capsys)
    assert said[3] == ["checkpoint_1_2.pt", "2", "sound"]
    assert said[4][:2] == ["checkpoint_1_4.pt", "-"]
    assert "have changed" in said[4][2]
    assert said[5] == ["checkpoint_last.pt", "-", "truncated or not a checkpoint"]
    assert said[6] == ["a", "training", "can continue from checkpoint_1_2.pt (2 updates)"]
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_weights_alone_cannot_be_resumed(training: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = torch.load(training / "checkpoint_last.pt", weights_only=True)
    torch.save({"model": state["model"]}, tmp_path / "weights.pt")
    assert main([str(tmp_path)]) == 0
    assert lines(capsys)[-1] == ["a", "training", "cannot continue from any of them"]


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place, message in ((tmp_path / "absent", "no such file or directory"), (tmp_path, "contains no checkpoint")):
        assert main([str(place)]) == 2
        assert capsys.readouterr().err == f"error: {place}: {message}\n"
