"""The average of a Pre-LN model has every tensor, and each one is the closed form of its history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models.ema.ema import EMA

from tests import toy
from tests.patches.conftest import Unpatch

DECAY = 0.9
UPDATES = 4
AVERAGED = ("--store-ema", "--ema-decay", str(DECAY))
PRE_NORM = ("--encoder-normalize-before", "--decoder-normalize-before")
TOP = {f"{stack}.layer_norm.{name}" for stack in ("encoder", "decoder") for name in ("weight", "bias")}

State = dict[str, Any]
slow = pytest.mark.slow


def train(data: Path, directory: Path, *flags: str, updates: int = UPDATES, arch: str = "transformer") -> State:
    pre_norm = PRE_NORM if arch == "transformer" else ()
    words = (*pre_norm, *AVERAGED, "--max-update", str(updates), *flags)
    state: State = torch.load(toy.train_toy(data, directory, *words, arch=arch), weights_only=True)
    return state


def average_of(state: State, kind: str = "ema") -> State:
    stored: State = state["extra_state"][kind]
    return stored


def assert_same(first: State, second: State) -> None:
    assert first.keys() == second.keys()
    assert [name for name, value in first.items() if not torch.equal(value, second[name])] == []


@pytest.fixture
def as_stock(unpatch: Unpatch) -> None:
    unpatch(EMA, "restore", "build_fp32_params")


@pytest.mark.parametrize(
    ("arch", "flags", "kind"),
    [
        ("transformer", "", "ema"),
        pytest.param("pre_ln_transformer", "", "ema", marks=slow),
        pytest.param("fixup_transformer", "", "ema", marks=slow),
        pytest.param("transformer", "--ema-fp32", "ema", marks=slow),
        ("pre_ln_transformer", "--ema-fp32", "ema"),
        ("transformer", "--bf16 --ema-fp32", "ema_fp32_params"),
    ],
)
def test_every_tensor_is_the_closed_form_average(
    arch: str, flags: str, kind: str, toy_data: Path, tmp_path: Path
) -> None:
    train(toy_data, tmp_path, *flags.split(), "--save-interval-updates", "1", arch=arch)
    paths = [tmp_path / f"checkpoint_1_{update}.pt" for update in range(1, UPDATES + 1)]
    states = [torch.load(path, weights_only=True) for path in paths]
    average, last = average_of(states[-1], kind), states[-1]["model"]
    assert average.keys() == last.keys()
    for name, value in average.items():
        if name.endswith(".version"):
            assert torch.equal(value.float(), last[name].float())
            continue
        # fairseq starts the average at the weights of the first update.
        weights = [state["model"][name].double() for state in states]
        parts = [DECAY ** (UPDATES - 1) * weights[0]]
        parts += [(1 - DECAY) * DECAY**age * weight for age, weight in enumerate(reversed(weights[1:]))]
        torch.testing.assert_close(value, torch.stack(parts).sum(dim=0).float(), rtol=1e-6, atol=1e-7, msg=name)
    norms = [name for name in average if ".layer_norm." in name]
    assert norms
    assert not any(torch.equal(average[name], last[name]) for name in norms)


@pytest.mark.parametrize("flags", [(), pytest.param(("--ema-fp32",), marks=slow)], ids=["", "fp32"])
def test_resumed_equals_uninterrupted(flags: tuple[str, ...], toy_data: Path, tmp_path: Path) -> None:
    whole = train(toy_data, tmp_path / "whole", *flags)
    train(toy_data, tmp_path / "parts", *flags, updates=UPDATES // 2)
    parts = train(toy_data, tmp_path / "parts", *flags)
    for kind in ("ema", "ema_fp32_params") if flags else ("ema",):
        assert average_of(whole, kind).keys() >= TOP
        assert_same(average_of(whole, kind), average_of(parts, kind))


@pytest.mark.parametrize("flags", [(), ("--ema-fp32",)], ids=["", "fp32"])
def test_stock_drops_the_norms_on_top_and_its_file_is_made_up_for(
    flags: tuple[str, ...],
    toy_data: Path,
    tmp_path: Path,
    as_stock: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """From the float32 average, in which stock keeps averaging the norms, or else from the last weights."""
    before = train(toy_data, tmp_path, *flags, updates=UPDATES - 1)
    last = before["model"]
    assert last.keys() - average_of(before).keys() == TOP
    assert [float(average_of(before)[f"{stack}.version"]) for stack in ("encoder", "decoder")] == [1, 1]
    monkeypatch.undo()
    after = train(toy_data, tmp_path, *flags)
    assert f"average of the weights lacks {', '.join(sorted(TOP))}: they are taken from" in caplog.text
    whole = average_of(train(toy_data, tmp_path / "whole", *flags))
    expected = {name: DECAY * last[name] + (1 - DECAY) * after["model"][name] for name in TOP}
    for name, value in average_of(after).items():
        wanted = expected[name] if name in TOP and not flags else whole[name]
        torch.testing.assert_close(value, wanted, rtol=1e-6, atol=1e-7, msg=name)


def test_nothing_is_said_of_a_file_that_lost_nothing(
    toy_data: Path, tmp_path: Path, as_stock: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Stock writes version 1 for Post-LN, too, which has nothing on top to lose."""
    old = train(toy_data, tmp_path, updates=2, arch="post_ln_transformer")
    assert old["model"].keys() == average_of(old).keys()
    monkeypatch.undo()
    new = train(toy_data, tmp_path, updates=3, arch="post_ln_transformer")
    assert "average of the weights lacks" not in caplog.text
    assert new["model"].keys() == average_of(new).keys()
