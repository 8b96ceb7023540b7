"""Averages of the weights (``--store-ema``): each tensor is the closed form of its history, resumed or not."""

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models.ema.ema import EMA

from tests import toy
from tests.faults.exact import differences

DECAY = 0.9
UPDATES = 4
AVERAGED = ("--store-ema", "--ema-decay", str(DECAY))
PRE_NORM = ("--encoder-normalize-before", "--decoder-normalize-before")
TOP = {f"{stack}.layer_norm.{name}" for stack in ("encoder", "decoder") for name in ("weight", "bias")}

State = dict[str, Any]
slow = pytest.mark.slow


def train(data: Path, directory: Path, *flags: str, updates: int = UPDATES, arch: str = "transformer") -> State:
    pre_norm = PRE_NORM if arch == "transformer" else ()
    words = (*pre_norm, "--max-update", str(updates), *flags)
    state: State = torch.load(toy.train_toy(data, directory, *words, arch=arch), weights_only=True)
    return state


def average_of(state: State, kind: str = "ema") -> State:
    stored: State = state["extra_state"][kind]
    return stored


@pytest.mark.parametrize(
    ("arch", "flags", "kind"),
    [
        ("transformer", "", "ema"),
        ("fixup_transformer", "", "ema"),
        ("admin_transformer", "--share-all-embeddings", "ema"),
        pytest.param("transformer", "--ema-fp32", "ema", marks=slow),
        ("pre_ln_transformer", "--ema-fp32", "ema"),
        ("transformer", "--bf16 --ema-fp32 --share-all-embeddings", "ema_fp32_params"),
    ],
)
def test_tensors_are_the_closed_form_average(arch: str, flags: str, kind: str, toy_data: Path, tmp_path: Path) -> None:
    train(toy_data, tmp_path, *AVERAGED, *flags.split(), "--save-interval-updates", "1", arch=arch)
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
    norms = [name for name in average if name.endswith(("layer_norm.weight", "layer_norm.scale"))]
    assert [name for name in norms if torch.equal(average[name], last[name])] == []
    assert norms


@pytest.mark.parametrize("flags", [(), ("--ema-fp32",)], ids=["", "fp32"])
def test_stock_drops_the_norms_on_top_and_its_training_keeps_them(flags, toy_data, tmp_path, unpatch, monkeypatch):
    """From the float32 average, in which stock keeps averaging the norms, or else from the last weights."""
    unpatch(EMA, "restore", "build_fp32_params")
    before = train(toy_data, tmp_path, *AVERAGED, *flags, updates=UPDATES - 1)
    last = before["model"]
    assert last.keys() - average_of(before).keys() == TOP
    assert [float(average_of(before)[f"{stack}.version"]) for stack in ("encoder", "decoder")] == [1, 1]
    monkeypatch.undo()
    after = train(toy_data, tmp_path, *AVERAGED, *flags)
    whole = average_of(train(toy_data, tmp_path / "whole", *AVERAGED, *flags))
    expected = {name: DECAY * last[name] + (1 - DECAY) * after["model"][name] for name in TOP}
    for name, value in average_of(after).items():
        wanted = expected[name] if name in TOP and not flags else whole[name]
        torch.testing.assert_close(value, wanted, rtol=1e-6, atol=1e-7, msg=name)


@pytest.mark.parametrize("flags", [(), pytest.param(("--ema-fp32",), marks=slow)], ids=["", "fp32"])
def test_an_average_starts_from_the_weights_of_a_plain_checkpoint(flags, toy_data, tmp_path, caplog):
    half = ("--store-ema", "--ema-decay", "0.5")
    plain = train(toy_data, tmp_path, updates=3)
    assert "ema" not in plain["extra_state"]
    after = train(toy_data, tmp_path, *half, *flags)
    assert "the checkpoint has no average of the weights (--store-ema): it starts from the weights" in caplog.text
    for kind in ("ema", "ema_fp32_params") if flags else ("ema",):
        average = average_of(after, kind)
        assert average.keys() == after["model"].keys()
        for name, value in average.items():
            half_way = (plain["model"][name] + after["model"][name]) / 2
            torch.testing.assert_close(value, half_way, rtol=1e-6, atol=1e-7, msg=name)
    # The training itself does not notice, and an average that is no longer wanted is left behind.
    assert differences(train(toy_data, tmp_path / "whole")["model"], after["model"]) == []
    assert "ema" not in train(toy_data, tmp_path, updates=5)["extra_state"]
