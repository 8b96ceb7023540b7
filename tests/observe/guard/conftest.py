"""Trainings with faults put into them."""

import logging
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.trainer import Trainer

from tests import toy
from tests.observe.recording import FEW, ON

Said = Callable[[], list[str]]
"""The lines of the guard so far."""


class Faults:
    """Faults by the number of the call of ``Trainer.train_step``, from 1; a repetition is the same call."""

    def __init__(self) -> None:
        self.call = 0
        self.trainers: list[Trainer] = []
        self.before: dict[int, Callable[[Trainer], None]] = {}
        self.left_out: set[int] = set()
        self.loss: Callable[[int, torch.Tensor], torch.Tensor] = lambda call, loss: loss

    def weight(self, call: int, path: str, value: float, index: int = -1) -> None:
        """Set one element of a parameter, for one batch."""

        healthy: list[torch.Tensor] = []

        def change(trainer: Trainer, to: float | torch.Tensor) -> None:
            with torch.no_grad():
                flat = trainer.get_model().get_parameter(path).view(-1)
                healthy.append(flat[index].clone())
                flat[index] = to

        self.before[call] = lambda trainer: change(trainer, value)
        self.before[call + 1] = lambda trainer: change(trainer, healthy[0])

    def losses(self, *calls: int, value: float = math.nan) -> None:
        """Multiply the losses of batches."""
        self.loss = lambda call, loss: loss * value if call in calls else loss


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    planned = Faults()
    step, compute = Trainer.train_step, LabelSmoothedCrossEntropyCriterion.compute_loss
    build, inside = Trainer.__init__, []

    def train_step(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        if inside:
            return step(self, *args, **kwargs)
        planned.call += 1
        planned.before.get(planned.call, lambda trainer: None)(self)
        if planned.call in planned.left_out:
            return None
        inside.append(True)
        try:
            return step(self, *args, **kwargs)
        finally:
            inside.clear()

    def compute_loss(self: Any, *args: Any, **kwargs: Any) -> Any:
        loss, nll = compute(self, *args, **kwargs)
        return planned.loss(planned.call, loss), nll

    def init(self: Trainer, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        planned.call = 0
        planned.trainers.append(self)

    monkeypatch.setattr(Trainer, "train_step", train_step)
    monkeypatch.setattr(Trainer, "__init__", init)
    monkeypatch.setattr(LabelSmoothedCrossEntropyCriterion, "compute_loss", compute_loss)
    return planned


class Training:
    """Toy trainings in one directory."""

    def __init__(self, data: Path, directory: Path) -> None:
        self.data, self.directory = data, directory

    def run(self, name: str, *flags: str, arch: str = "admin_transformer", updates: int = 4) -> Path:
        """Train; returns the run's directory."""
        toy.train_toy(self.data, self.directory / name, *ON, *FEW, str(updates), *flags, arch=arch)
        return self.directory / name


@pytest.fixture
def training(toy_data: Path, tmp_path: Path) -> Training:
    return Training(toy_data, tmp_path)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    """The guard's warnings since the start of the test."""
    caplog.set_level(logging.INFO)

    def lines() -> list[str]:
        prefix = "divergence guard: "
        return [
            record.getMessage().removeprefix(prefix)
            for record in caplog.records
            if record.levelno >= logging.WARNING and record.getMessage().startswith(prefix)
        ]

    return lines


def places(lines: list[str]) -> list[str]:
    """The places that the guard's lines name."""
    return [match[1] for line in lines if (match := re.search("; first in (\\S+) ", line))]


def checkpoint(run: Path, name: str = "checkpoint_last.pt") -> dict:
    return torch.load(run / name, weights_only=True)
