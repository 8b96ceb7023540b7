"""``--lr-scheduler polynomial_decay`` lasts as long as the training, by flag as by YAML, or says what it needs."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim.lr_scheduler.polynomial_decay_schedule import PolynomialDecayLRSchedule
from fairseq.trainer import Trainer

from fairseq_plugins.errors import UserError
from tests import toy
from tests.config.test_hydra import TINY, read, recipe, run_hydra
from tests.processes import Command

DECAY = ("--lr-scheduler", "polynomial_decay", "--lr", "0.006", "--warmup-updates", "2")
NEEDS = "polynomial_decay needs the number of updates .* use --max-update, or --total-num-update"


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


@pytest.fixture
def stock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "parse_args_and_arch", inspect.unwrap(options.parse_args_and_arch))
    monkeypatch.setattr(PolynomialDecayLRSchedule, "__init__", inspect.unwrap(PolynomialDecayLRSchedule.__init__))


# Two updates of warm-up from 0, then a straight line that would be 0 after six updates.
TO_SIX = [0.0, 0.003, 0.006, 0.0045, 0.003, 0.0015]


def yaml(data: Path, directory: Path, **optimization: Any) -> Any:
    content = recipe(data, directory / "run", {"_name": "pre_ln_transformer", **TINY})
    content["optimization"] = {**content["optimization"], "lr": [0.006], **optimization}
    content["lr_scheduler"] = {"_name": "polynomial_decay", "warmup_updates": 2}
    return read(directory / "config", content)


def test_by_flag_it_follows_max_update(rates: list[float], toy_data: Path, tmp_path: Path) -> None:
    toy.train_toy(toy_data, tmp_path, *DECAY, "--max-update", "6", "--no-save")
    assert rates == pytest.approx(TO_SIX, rel=1e-9)


def test_by_yaml_it_does_too(rates: list[float], toy_data: Path, tmp_path: Path) -> None:
    run_hydra(yaml(toy_data, tmp_path, max_update=6))
    assert rates == pytest.approx(TO_SIX, rel=1e-9)


def test_a_given_length_wins(rates: list[float], toy_data: Path, tmp_path: Path) -> None:
    toy.train_toy(toy_data, tmp_path, *DECAY, "--max-update", "4", "--total-num-update", "6", "--no-save")
    assert rates == pytest.approx(TO_SIX[:4], rel=1e-9)


def test_a_training_without_end_is_refused_before_it_starts(toy_data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=NEEDS):
        toy.parse_training(toy_data, tmp_path, *DECAY, "--max-epoch", "1")


def test_by_yaml_it_is_refused_too(toy_data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=NEEDS):
        run_hydra(yaml(toy_data, tmp_path, max_update=0, max_epoch=1))


def test_a_length_of_nothing_is_refused(toy_data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=NEEDS):
        toy.train_toy(toy_data, tmp_path, *DECAY, "--max-update", "6", "--total-num-update", "0", "--no-save")


def test_the_terminal_shows_one_line(toy_data: Path, tmp_path: Path, fairseq_deep: Command) -> None:
    flags = ["--arch", "transformer", *toy.TINY_MODEL, *toy.RECIPE, *DECAY]
    ended = fairseq_deep("train", str(toy_data), "--save-dir", str(tmp_path), *flags)
    assert ended.code == 2
    assert [line for line in ended.errors.splitlines() if "polynomial_decay" in line] == [
        "error: --lr-scheduler polynomial_decay needs the number of updates over which it decays, above 0: use "
        "--max-update, or --total-num-update if the decay does not end with the training"
    ]
    assert "Traceback" not in ended.errors + ended.output


def test_another_command_needs_no_length(toy_data: Path) -> None:
    arguments = [str(toy_data), "--path", "model.pt", "--lr-scheduler", "polynomial_decay"]
    parsed = options.parse_args_and_arch(options.get_generation_parser(), input_args=arguments)
    assert convert_namespace_to_omegaconf(parsed).lr_scheduler.total_num_update == 0


def test_stock_by_flag_wants_the_length(toy_data: Path, tmp_path: Path, stock: None) -> None:
    with pytest.raises(Exception, match="lr_scheduler.total_num_update=null"):
        toy.parse_training(toy_data, tmp_path, *DECAY, "--max-update", "6")


def test_stock_without_an_end_fails_an_assertion(toy_data: Path, tmp_path: Path, stock: None) -> None:
    with pytest.raises(AssertionError):
        run_hydra(yaml(toy_data, tmp_path, max_update=0, max_epoch=1))
