"""``--lr-scheduler polynomial_decay`` lasts as long as the training, by flag as by YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer

from tests import toy
from tests.config.test_hydra import TINY, recipe, run_hydra
from tests.patches.conftest import Unpatch

DECAY = ("--lr-scheduler", "polynomial_decay", "--lr", "0.006", "--warmup-updates", "2")
# Two updates of warm-up from 0, then a straight line that would be 0 after six updates.
TO_SIX = [0.0, 0.003, 0.006, 0.0045, 0.003, 0.0015]


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The rate with which each update is made."""
    seen: list[float] = []
    train_step = Trainer.train_step

    def watch(trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
        seen.append(trainer.optimizer.get_lr())
        return train_step(trainer, *args, **kwargs)

    monkeypatch.setattr(Trainer, "train_step", watch)
    return seen


@pytest.mark.parametrize("flags", ["--max-update 6", "--max-update 4 --total-num-update 6"])
def test_by_flag_it_follows_max_update_unless_told(
    flags: str, rates: list[float], toy_data: Path, tmp_path: Path
) -> None:
    toy.train_toy(toy_data, tmp_path, *DECAY, *flags.split(), "--no-save")
    assert rates == pytest.approx(TO_SIX[: int(flags.split()[1])], rel=1e-9)


def test_by_yaml_it_does_too(rates: list[float], toy_data: Path, tmp_path: Path) -> None:
    content = recipe(TranslationTask, toy_data, tmp_path / "run", {"_name": "pre_ln_transformer", **TINY})
    content["optimization"] = {**content["optimization"], "lr": [0.006], "max_update": 6}
    content["lr_scheduler"] = {"_name": "polynomial_decay", "warmup_updates": 2}
    run_hydra(tmp_path / "config", content, tmp_path / "run")
    assert rates == pytest.approx(TO_SIX, rel=1e-9)


def test_another_command_needs_no_length(toy_data: Path) -> None:
    arguments = [str(toy_data), "--path", "model.pt", "--lr-scheduler", "polynomial_decay"]
    parsed = options.parse_args_and_arch(options.get_generation_parser(), input_args=arguments)
    assert convert_namespace_to_omegaconf(parsed).lr_scheduler.total_num_update == 0


def test_stock_by_flag_wants_the_length(toy_data: Path, tmp_path: Path, unpatch: Unpatch) -> None:
    unpatch(options, "parse_args_and_arch")
    with pytest.raises(Exception, match="lr_scheduler.total_num_update=null"):
        toy.parse_training(toy_data, tmp_path, *DECAY, "--max-update", "6")
