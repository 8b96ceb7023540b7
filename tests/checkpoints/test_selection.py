"""The best checkpoints are selected by the scores in them, not by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_plugins.checkpoints.average import main
from fairseq_plugins.checkpoints.files import read_checkpoint
from fairseq_plugins.checkpoints.selection import best_checkpoints
from fairseq_plugins.errors import UserError
from tests import toy


def save(path: Path, updates: int, value: float | None, metric: str = "loss", larger: bool = False) -> Path:
    settings: dict[str, Any] = {"best_checkpoint_metric": metric, "maximize_best_checkpoint_metric": larger}
    state = {
        "cfg": {"model": {"_name": "transformer"}, "checkpoint": settings},
        "model": {"w": torch.tensor([float(updates)])},
        "optimizer_history": [{"num_updates": updates}],
        "extra_state": {"val_loss": value, "train_iterator": {}},
    }
    torch.save(state, path)
    return path


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_a_loss_is_best_when_small_and_a_bleu_when_large(tmp_path: Path) -> None:
    values = {100: 5.0, 200: 3.0, 300: 4.0, 400: 3.5}
    for updates, value in values.items():
        save(tmp_path / f"checkpoint_1_{updates}.pt", updates, value)
    assert names(best_checkpoints(tmp_path, 2)) == ["checkpoint_1_200.pt", "checkpoint_1_400.pt"]
    for updates, value in values.items():
        save(tmp_path / f"checkpoint_1_{updates}.pt", updates, value, "bleu", larger=True)
    assert names(best_checkpoints(tmp_path, 2)) == ["checkpoint_1_100.pt", "checkpoint_1_300.pt"]
    # Of equal values the newest is taken.
    save(tmp_path / "checkpoint_1_200.pt", 200, 5.0, "bleu", larger=True)
    assert names(best_checkpoints(tmp_path, 1)) == ["checkpoint_1_200.pt"]


def test_copies_count_once_and_have_their_lasting_name(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint3.pt", 30, 2.0)
    save(tmp_path / "checkpoint_best.pt", 30, 2.0)
    save(tmp_path / "checkpoint.best_loss_2.0007.pt", 30, 2.0)
    save(tmp_path / "checkpoint.best_loss_2.5003.pt", 20, 2.5)
    save(tmp_path / "checkpoint_last.pt", 40, 3.0)
    chosen = best_checkpoints(tmp_path, 3)
    assert names(chosen) == ["checkpoint.best_loss_2.5003.pt", "checkpoint3.pt", "checkpoint_last.pt"]


def test_mistakes(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint1.pt", 10, None)
    save(tmp_path / "checkpoint2.pt", 20, 30.0, "bleu", larger=True)
    for directory, count, message in (
        (tmp_path / "absent", 1, "absent: only 0 checkpoints saved after a validation, not 1"),
        (tmp_path, 2, "only 1 checkpoints saved after a validation, not 2"),
    ):
        with pytest.raises(UserError, match=message):
            best_checkpoints(directory, count)
    save(tmp_path / "checkpoint3.pt", 30, 1.0)
    with pytest.raises(UserError, match=r"have different metrics \(bleu, loss\): use --inputs"):
        best_checkpoints(tmp_path, 1)


def test_on_what_fairseq_writes(toy_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The values that fairseq put into the names of its best checkpoints choose the same ones."""
    flags = ("--max-epoch", "6", "--keep-best-checkpoints", "2", "--dropout", "0", "--lr", "0.1")
    toy.train_toy(toy_data, tmp_path, *flags, validate=True)
    kept = [read_checkpoint(path) for path in tmp_path.glob("checkpoint.best_loss_*.pt")]
    capsys.readouterr()
    output = tmp_path / "out.pt"
    assert main(["--best", "2", "--checkpoints", str(tmp_path), "--output", str(output)]) == 0
    state = read_checkpoint(output)
    chosen = {source["num_updates"] for source in state["averaged_from"]}
    assert chosen == {each["optimizer_history"][-1]["num_updates"] for each in kept}
    mean = (kept[0]["model"]["encoder.layers.0.fc1.weight"] + kept[1]["model"]["encoder.layers.0.fc1.weight"]) / 2
    torch.testing.assert_close(state["model"]["encoder.layers.0.fc1.weight"], mean)
