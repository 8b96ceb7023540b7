"""A moving average that begins in the middle of a training, and one that is resumed between two of its steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.trainer import Trainer

from tests import toy
from tests.patches.conftest import Unpatch

AVERAGED = ("--store-ema", "--ema-decay", "0.5")
EVERY_THIRD = (*AVERAGED, "--ema-update-freq", "3")


def train(data: Path, directory: Path, updates: int, *flags: str) -> dict[str, Any]:
    path = toy.train_toy(data, directory, "--max-update", str(updates), *flags)
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state


def equal(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


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
    # The training itself does not notice, and an average that is no longer wanted is left behind.
    assert equal(train(toy_data, tmp_path / "whole", 4)["model"], after["model"])
    assert "ema" not in train(toy_data, tmp_path, 5)["extra_state"]


def test_stock_stops_at_a_plain_checkpoint(toy_data: Path, tmp_path: Path, unpatch: Unpatch) -> None:
    unpatch(Trainer, "load_checkpoint")
    train(toy_data, tmp_path, 3)
    with pytest.raises(KeyError, match="model"):
        train(toy_data, tmp_path, 4, *AVERAGED)


def test_an_interval_goes_on_where_it_stopped_but_in_stock(toy_data: Path, tmp_path: Path, unpatch: Unpatch) -> None:
    def average(directory: str, *stops: int) -> dict[str, Any]:
        states = [train(toy_data, tmp_path / directory, stop, *EVERY_THIRD) for stop in stops]
        stored: dict[str, Any] = states[-1]["extra_state"]["ema"]
        return stored

    whole = average("whole", 7)
    assert equal(whole, average("ours", 3, 5, 7))
    unpatch(Trainer, "load_checkpoint")
    stock = average("stock", 5, 7)
    assert not any(torch.equal(value, stock[name]) for name, value in whole.items() if name.endswith("fc1.weight"))
