"""Advice: what a part has to say about a training stands in the log once, before the first update, in any launcher."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fairseq.trainer import Trainer
from omegaconf import DictConfig, OmegaConf
from torch import nn

from fairseq_plugins.training import advice
from tests import toy
from tests.models import tiny

WARM_UP = "T-Fixup is meant to train without warm-up"
"""The one part that has something to say, and only of schedules that warm up, as the toy recipe's does."""


class Heard(logging.Handler):
    """What the package's advice logs, and how many updates had been made by then."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.updates: list[int] = []
        self.made = 0

    def emit(self, record: logging.LogRecord) -> None:
        assert record.levelno == logging.WARNING
        self.lines.append(record.getMessage())
        self.updates.append(self.made)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    handler = Heard()
    train_step = Trainer.train_step

    def counted(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        handler.made += 1
        return train_step(self, *args, **kwargs)

    monkeypatch.setattr(Trainer, "train_step", counted)
    advice.logger.addHandler(handler)
    yield handler
    advice.logger.removeHandler(handler)


def test_a_training_by_flag_is_told_once_at_its_start(toy_data: Path, tmp_path: Path, heard: Heard) -> None:
    toy.train_toy(toy_data, tmp_path, "--max-update", "2", arch="t_fixup_transformer")
    assert heard.made == 2
    (line,) = heard.lines
    assert line.startswith(WARM_UP)
    assert "\n" not in line
    assert "--lr-scheduler inverse_sqrt warms up for 4 updates" in line
    assert heard.updates == [0]


def settings() -> DictConfig:
    return OmegaConf.create(
        {"optimization": {"lr": [1.0]}, "lr_scheduler": {"_name": "fixed", "warmup_updates": 9, "lr": [1.0]}}
    )


def test_what_both_stacks_say_is_said_once() -> None:
    for init, lines in (("t_fixup", 1), ("t_fixup,keep", 1), ("keep,t_fixup", 1), ("keep", 0)):
        assert len(advice.advice(tiny("t_fixup_transformer", init=init), settings())) == lines
    # Stock models get none.
    assert advice.advice(nn.Linear(2, 2), settings()) == []
    assert advice.advice(tiny("transformer"), settings()) == []
