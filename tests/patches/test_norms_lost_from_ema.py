"""The moving average of the weights has every tensor of the model, whatever stands on top of a stack."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.models.ema.ema import EMA

from tests import toy
from tests.config.test_hydra import TINY, read, recipe, run_hydra

DECAY = 0.5
UPDATES = 4
AVERAGED = ("--store-ema", "--ema-decay", str(DECAY))
PRE_NORM = ("--encoder-normalize-before", "--decoder-normalize-before")
TOP = {f"{stack}.layer_norm.{name}" for stack in ("encoder", "decoder") for name in ("weight", "bias")}

State = dict[str, Any]


def train(data: Path, directory: Path, *flags: str, updates: int = UPDATES, arch: str = "transformer") -> Path:
    pre_norm = PRE_NORM if arch == "transformer" else ()
    return toy.train_toy(data, directory, *pre_norm, *AVERAGED, "--max-update", str(updates), *flags, arch=arch)


def read_state(path: Path) -> State:
    state: State = torch.load(path, weights_only=True)
    return state


def average_of(state: State) -> State:
    stored: State = state["extra_state"]["ema"]
    return stored


def closed_form(weights: list[torch.Tensor]) -> torch.Tensor:
    """The average after ``weights``, one an update: fairseq starts it at the first of them."""
    parts = [DECAY ** (len(weights) - 1) * weights[0].double()]
    parts += [(1 - DECAY) * DECAY**age * weight.double() for age, weight in enumerate(reversed(weights[1:]))]
    return torch.stack(parts).sum(dim=0).float()


def assert_average_of_all_updates(directory: Path, kind: str = "ema") -> None:
    """Compare the last file's average with the weights that a file of each update holds."""
    each = [read_state(directory / f"checkpoint_1_{update}.pt") for update in range(1, UPDATES + 1)]
    average, last = each[-1]["extra_state"][kind], each[-1]["model"]
    assert average.keys() == last.keys()
    assert any(".layer_norm." in name for name in average)
    for name, value in average.items():
        if name.endswith(".version"):
            assert torch.equal(value.float(), last[name].float())
        else:
            expected = closed_form([state["model"][name] for state in each])
            torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-7, msg=name)
    moved = [name for name in average if ".layer_norm." in name and not torch.equal(average[name], last[name])]
    assert moved == [name for name in average if ".layer_norm." in name]


def stock_methods(patch: pytest.MonkeyPatch) -> None:
    for owner, name in (
        (EMA, "restore"),
        (EMA, "build_fp32_params"),
        (checkpoint_utils, "load_ema_from_checkpoint"),
    ):
        patch.setattr(owner, name, inspect.unwrap(getattr(owner, name)))


def train_stock(data: Path, directory: Path, *flags: str, updates: int = UPDATES) -> Path:
    """The file of a training without the patch."""
    with pytest.MonkeyPatch.context() as patch:
        stock_methods(patch)
        return train(data, directory, *flags, updates=updates)


Whole = Callable[..., State]


@pytest.fixture(scope="module")
def whole(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The checkpoint of an uninterrupted training with these flags, which is made once."""

    @functools.cache
    def train_once(*flags: str) -> State:
        return read_state(train(toy_data, tmp_path_factory.mktemp("whole"), *flags))

    return train_once


@pytest.fixture(scope="module")
def of_stock(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The same without the patch, the file of it."""

    @functools.cache
    def train_once(*flags: str) -> Path:
        return train_stock(toy_data, tmp_path_factory.mktemp("stock"), *flags)

    return train_once


@pytest.mark.parametrize(
    ("flags", "arch"),
    [
        pytest.param((), "transformer", id="-transformer"),
        pytest.param((), "pre_ln_transformer", id="-pre_ln_transformer", marks=pytest.mark.slow),
        pytest.param((), "fixup_transformer", id="-fixup_transformer", marks=pytest.mark.slow),
        pytest.param(("--ema-fp32",), "transformer", id="fp32-transformer", marks=pytest.mark.slow),
        pytest.param(("--ema-fp32",), "pre_ln_transformer", id="fp32-pre_ln_transformer"),
        pytest.param(("--ema-fp32",), "fixup_transformer", id="fp32-fixup_transformer"),
    ],
)
def test_every_tensor_is_the_closed_form_average(
    arch: str, flags: tuple[str, ...], toy_data: Path, tmp_path: Path
) -> None:
    train(toy_data, tmp_path, *flags, "--save-interval-updates", "1", arch=arch)
    assert_average_of_all_updates(tmp_path)


def test_the_float32_average_of_a_bfloat16_model_too(toy_data: Path, tmp_path: Path) -> None:
    flags = ("--bf16", "--ema-fp32", "--save-interval-updates", "1")
    state = read_state(train(toy_data, tmp_path, *flags))
    assert average_of(state).keys() == state["model"].keys()
    assert_average_of_all_updates(tmp_path, "ema_fp32_params")


def test_by_yaml_too(toy_data: Path, tmp_path: Path) -> None:
    content = recipe(toy_data, tmp_path / "run", {"_name": "pre_ln_transformer", **TINY})
    content["ema"] = {"store_ema": True, "ema_decay": DECAY}
    content["optimization"]["max_update"] = UPDATES
    content["checkpoint"]["save_interval_updates"] = 1
    run_hydra(read(tmp_path / "config", content))
    assert_average_of_all_updates(tmp_path / "run")


@pytest.mark.parametrize("flags", [(), pytest.param(("--ema-fp32",), marks=pytest.mark.slow)], ids=["", "fp32"])
def test_resumed_equals_uninterrupted(flags: tuple[str, ...], toy_data: Path, tmp_path: Path, whole: Whole) -> None:
    uninterrupted = whole(*flags)["extra_state"]
    train(toy_data, tmp_path, *flags, updates=UPDATES // 2)
    halves = read_state(train(toy_data, tmp_path, *flags))["extra_state"]
    for kind in ("ema", "ema_fp32_params") if flags else ("ema",):
        assert TOP <= uninterrupted[kind].keys() == halves[kind].keys()
        for name, value in uninterrupted[kind].items():
            assert torch.equal(value, halves[kind][name]), name


@pytest.mark.parametrize("flags", [(), ("--ema-fp32",)], ids=["", "fp32"])
def test_stock_drops_the_norms_on_top(flags: tuple[str, ...], of_stock: Callable[..., Path]) -> None:
    state = read_state(of_stock(*flags))
    assert state["model"].keys() - average_of(state).keys() == TOP
    assert [float(average_of(state)[f"{stack}.version"]) for stack in ("encoder", "decoder")] == [1, 1]
    assert [float(state["model"][f"{stack}.version"]) for stack in ("encoder", "decoder")] == [3, 3]


def test_a_file_without_the_norms_goes_on_from_its_weights(
    toy_data: Path, tmp_path: Path, whole: Whole, caplog: pytest.LogCaptureFixture
) -> None:
    uninterrupted = average_of(whole())
    before = read_state(train_stock(toy_data, tmp_path, updates=UPDATES - 1))
    caplog.clear()
    after = read_state(train(toy_data, tmp_path))
    assert f"average of the weights lacks {', '.join(sorted(TOP))}: they are taken from" in caplog.text
    assert average_of(after).keys() == uninterrupted.keys() == after["model"].keys()
    for name, value in average_of(after).items():
        if name in TOP:
            expected = DECAY * before["model"][name] + (1 - DECAY) * after["model"][name]
            torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-7, msg=name)
        else:
            assert torch.equal(value, uninterrupted[name]), name


def test_its_float32_average_makes_up_for_all(toy_data: Path, tmp_path: Path, whole: Whole) -> None:
    """Stock keeps averaging the norms there: nothing is lost."""
    uninterrupted = average_of(whole("--ema-fp32"))
    train_stock(toy_data, tmp_path, "--ema-fp32", updates=UPDATES - 1)
    after = average_of(read_state(train(toy_data, tmp_path, "--ema-fp32")))
    assert after.keys() == uninterrupted.keys()
    for name, value in uninterrupted.items():
        assert torch.equal(after[name], value), name


@pytest.mark.parametrize("flags", [(), ("--ema-fp32",)], ids=["", "fp32"])
def test_the_average_of_an_old_file_is_handed_out_whole(
    flags: tuple[str, ...], tmp_path: Path, whole: Whole, of_stock: Callable[..., Path]
) -> None:
    patched = average_of(whole(*flags))
    path = of_stock(*flags)
    last = read_state(path)["model"]
    checkpoint_utils.save_ema_as_checkpoint(str(path), str(tmp_path / "average.pt"))
    (model,), _ = checkpoint_utils.load_model_ensemble([str(tmp_path / "average.pt")], strict=True)
    loaded = model.state_dict()
    assert loaded.keys() == last.keys()
    for name, value in loaded.items():
        assert torch.equal(value, last[name] if name in TOP and not flags else patched[name]), name


def test_an_average_seeded_with_an_old_file_is_whole(
    toy_data: Path, tmp_path: Path, of_stock: Callable[..., Path]
) -> None:
    seed = of_stock()
    flags = ("--ema-seed-model", str(seed), "--ema-decay", "1")
    average = average_of(read_state(train(toy_data, tmp_path / "run", *flags, updates=2)))
    last, old = read_state(seed)["model"], average_of(read_state(seed))
    assert average.keys() == last.keys()
    for name, value in average.items():
        from_weights = name in TOP or name.endswith(".version")
        assert torch.equal(value, last[name] if from_weights else old[name]), name


def test_nothing_is_said_of_a_file_that_lost_nothing(
    toy_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Stock writes version 1 for Post-LN, too, which has nothing on top to lose."""
    flags = ("--store-ema", "--ema-decay", str(DECAY), "--max-update")
    with pytest.MonkeyPatch.context() as patch:
        stock_methods(patch)
        old = read_state(toy.train_toy(toy_data, tmp_path, *flags, "2"))
    assert float(average_of(old)["decoder.version"]) == 1
    new = read_state(toy.train_toy(toy_data, tmp_path, *flags, "3"))
    assert "average of the weights lacks" not in caplog.text
    assert float(average_of(new)["decoder.version"]) == 3
