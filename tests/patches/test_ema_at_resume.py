"""A moving average that begins in the middle of a training, and one that is resumed between two of its steps."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.trainer import Trainer

from tests import toy

AVERAGED = ("--store-ema", "--ema-decay", "0.5")


def train(data: Path, directory: Path, updates: int, *flags: str) -> dict[str, Any]:
    path = toy.train_toy(data, directory, "--max-update", str(updates), *flags)
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state


@pytest.fixture
def stock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "load_checkpoint", inspect.unwrap(Trainer.load_checkpoint))


@pytest.mark.parametrize("flags", [(), pytest.param(("--ema-fp32",), marks=pytest.mark.slow)], ids=["", "fp32"])
def test_an_average_starts_from_the_weights_of_a_plain_checkpoint(
    flags: tuple[str, ...], toy_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = train(toy_data, tmp_path, 3)
    assert "ema" not in plain["extra_state"]
    after = train(toy_data, tmp_path, 4, *AVERAGED, *flags)
    assert "the checkpoint has no average of the weights (--store-ema): it starts from the weights" in caplog.text
    for kind in ("ema", "ema_fp32_params") if flags else ("ema",):
        average = after["extra_state"][kind]
        assert average.keys() == after["model"].keys()
        for name, value in average.items():
            half_way = (plain["model"][name] + after["model"][name]) / 2
            torch.testing.assert_close(value, half_way, rtol=1e-6, atol=1e-7, msg=name)


def test_the_training_itself_does_not_notice(toy_data: Path, tmp_path: Path) -> None:
    whole = train(toy_data, tmp_path / "whole", 4)
    train(toy_data, tmp_path / "halves", 3)
    halves = train(toy_data, tmp_path / "halves", 4, *AVERAGED)
    assert all(torch.equal(value, halves["model"][name]) for name, value in whole["model"].items())


def test_an_average_that_is_no_longer_wanted_is_left_behind(toy_data: Path, tmp_path: Path) -> None:
    train(toy_data, tmp_path, 3, *AVERAGED)
    assert "ema" not in train(toy_data, tmp_path, 4)["extra_state"]


def test_stock_stops_at_a_plain_checkpoint(toy_data: Path, tmp_path: Path, stock: None) -> None:
    train(toy_data, tmp_path, 3)
    with pytest.raises(KeyError, match="model"):
        train(toy_data, tmp_path, 4, *AVERAGED)


EVERY_THIRD = (*AVERAGED, "--ema-update-freq", "3")


@pytest.fixture(scope="module")
def whole(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The average after seven updates at one step in three, uninterrupted."""
    average: dict[str, Any] = train(toy_data, tmp_path_factory.mktemp("whole"), 7, *EVERY_THIRD)["extra_state"]["ema"]
    return average


def stopped(data: Path, directory: Path, stop: int) -> dict[str, Any]:
    """The same of a training that was stopped after ``stop`` updates."""
    train(data, directory, stop, *EVERY_THIRD)
    average: dict[str, Any] = train(data, directory, 7, *EVERY_THIRD)["extra_state"]["ema"]
    return average


@pytest.mark.parametrize("stop", [3, pytest.param(4, marks=pytest.mark.slow), 5])
def test_an_interval_goes_on_where_it_stopped(stop: int, toy_data: Path, tmp_path: Path, whole: dict[str, Any]) -> None:
    halves = stopped(toy_data, tmp_path, stop)
    assert whole.keys() == halves.keys()
    assert all(torch.equal(value, halves[name]) for name, value in whole.items())


def test_stock_begins_another_interval(toy_data: Path, tmp_path: Path, whole: dict[str, Any], stock: None) -> None:
    halves = stopped(toy_data, tmp_path, 5)
    assert not any(torch.equal(value, halves[name]) for name, value in whole.items() if name.endswith("fc1.weight"))
