"""Advice: what a part has to say about a training stands in the log once, before the first update, in any launcher."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer
from omegaconf import DictConfig, OmegaConf
from torch import nn

from fairseq_plugins.core.method import Axis
from fairseq_plugins.training import advice
from tests import toy
from tests.config.test_hydra import TINY, recipe, run_hydra
from tests.models import tiny

WARM_UP = "T-Fixup is meant to train without warm-up"
"""The one part that has something to say, and only of schedules that warm up, as the toy recipe's does."""
WITHOUT = ("--warmup-init-lr", "0.005")  # the toy recipe's learning rate


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


def test_a_training_by_yaml_is_told_once_at_its_start(toy_data: Path, tmp_path: Path, heard: Heard) -> None:
    content = recipe(TranslationTask, toy_data, tmp_path / "run", {"_name": "t_fixup_transformer", **TINY})
    run_hydra(tmp_path / "config", content, tmp_path / "run")
    assert heard.made == 6
    assert [line.startswith(WARM_UP) for line in heard.lines] == [True]
    assert heard.updates == [0]


@pytest.mark.parametrize(("arch", "flags"), [("t_fixup_transformer", WITHOUT), ("post_ln_transformer", ())])
def test_nothing_is_said_where_there_is_nothing_to_say(
    arch: str, flags: tuple[str, ...], toy_data: Path, tmp_path: Path, heard: Heard
) -> None:
    toy.train_toy(toy_data, tmp_path, "--max-update", "1", *flags, arch=arch)
    assert heard.made == 1
    assert heard.lines == []


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


def test_every_axis_is_asked() -> None:
    """A part of any axis may have something to say."""
    model = tiny("post_ln_transformer")
    for stack in (model.encoder, model.decoder):
        talking = {
            axis: replace(part, advice=lambda config, axis=axis: [f"from {axis.value}"])
            for axis, part in stack.design.parts.items()
        }
        stack.design = replace(stack.design, parts=talking)
    assert advice.advice(model, settings()) == [f"from {axis.value}" for axis in Axis]


def test_installing_it_again_changes_nothing() -> None:
    before = Trainer.__init__
    advice.install()
    assert Trainer.__init__ is before
