"""A fault that is put into a training is found in the update in which it shows, and named where it was put."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.trainer import Trainer
from torch import nn

from fairseq_plugins.errors import Diverged
from tests import toy

BASE = "label_smoothed_cross_entropy"
ON = ("--criterion", f"{BASE}_with_diagnostics", "--diagnostics-interval", "1", "--divergence-action", "stop")
FEW = ("--no-epoch-checkpoints", "--max-update")


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[Trainer], None]], None]:
    """Do something to a training before one of its updates."""

    def plan(update: int, fault: Callable[[Trainer], None]) -> None:
        stock, done = Trainer.train_step, []

        def step(self: Trainer, *args: Any, **kwargs: Any) -> Any:
            if self.get_num_updates() + 1 == update and not done:
                done.append(True)
                with torch.no_grad():
                    fault(self)
            return stock(self, *args, **kwargs)

        monkeypatch.setattr(Trainer, "train_step", step)

    return plan


def poison(path: str, value: float) -> Callable[[Trainer], None]:
    def fault(trainer: Trainer) -> None:
        parameter = trainer.get_model().get_parameter(path)
        parameter.view(-1)[1] = value

    return fault


def run(data: Path, directory: Path, *flags: str, arch: str = "admin_transformer", updates: int = 4) -> None:
    toy.train_toy(data, directory, *ON, *FEW, str(updates), *flags, arch=arch)


def place_in(report: str) -> str:
    (line,) = [line for line in report.splitlines() if line.startswith("- **Where first**: ")]
    return line.split("`")[1]


def reports(directory: Path) -> list[str]:
    return [path.read_text() for path in sorted((directory / "divergence").glob("*.md"))]


@pytest.mark.parametrize(
    ("arch", "path", "value", "place"),
    [
        ("admin_transformer", "encoder.layers.1.fc1.weight", math.inf, "encoder.layers.1.ffn"),
        ("admin_transformer", "decoder.layers.0.encoder_attn.q_proj.weight", math.nan, "decoder.layers.0.encoder_attn"),
    ],
)
def test_a_weight(
    toy_data: Path, tmp_path: Path, before: Any, arch: str, path: str, value: float, place: str
) -> None:
    before(3, poison(path, value))
    with pytest.raises(Diverged, match=f"diverged at update 3: .*; first in {place}; report: ") as caught:
        run(toy_data, tmp_path, arch=arch)
    (report,) = reports(tmp_path)
    print(caught.value)
    print(report)
    assert place_in(report) == place
