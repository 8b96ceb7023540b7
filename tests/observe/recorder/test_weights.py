"""Weights of residuals and histories in the entries are those of the checkpoint that the update began with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fairseq_plugins.observe.recorder import read
from tests import toy

EVERY_UPDATE = (
    *("--criterion", "label_smoothed_cross_entropy_with_diagnostics", "--diagnostics-interval", "1"),
    *("--no-epoch-checkpoints", "--save-interval-updates", "1", "--max-update", "3"),
)


def weights(directory: Path, updates: int) -> dict[str, torch.Tensor]:
    (path,) = directory.glob(f"checkpoint_*_{updates}.pt")
    return torch.load(path, weights_only=True)["model"]


@pytest.mark.parametrize("flags", [(), ("--dlcl-weights", "dimension"), ("--fp16", "--memory-efficient-fp16")])
def test_history_weights(toy_data: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    toy.train_toy(toy_data, tmp_path, *EVERY_UPDATE, *flags, arch="dlcl_transformer")
    entries = read(tmp_path / "recorder.jsonl")
    for entry, updates in ((entries[1], 1), (entries[2], 2)):
        for stack in ("encoder", "decoder"):
            table = weights(tmp_path, updates)[f"{stack}.history.weight"].float().mean(dim=2)
            names = {f"{stack}.history.{i}.{k}/history_weight": (i, k) for i in range(3) for k in range(i + 1)}
            found = {name for name in entry.values if name.startswith(stack) and name.endswith("/history_weight")}
            assert found == {*names}
            for name, place in names.items():
                assert entry.values[name] == pytest.approx(float(table[place]), rel=1e-3 if flags else 1e-6)
    moved = [entries[0].values[name] != entries[2].values[name] for name in names]
    assert any(moved)


def test_no_history_is_recorded_that_is_not_trained(toy_data: Path, tmp_path: Path) -> None:
    toy.train_toy(toy_data, tmp_path, *EVERY_UPDATE, "--max-update", "1", arch="rezero_transformer")
    (entry,) = read(tmp_path / "recorder.jsonl")
    assert not any("history" in name for name in entry.values)
