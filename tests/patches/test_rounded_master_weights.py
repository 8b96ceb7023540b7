"""Half precision resumed: the float32 master weights and the counts of the loss scale are those of before."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.optim import AMPOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer
from torch import Tensor, nn

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.rounded_master_weights import COUNTS, MASTERS, SCALER
from tests import toy

FORMS = {
    "flat": ("--fp16",),
    "separate": ("--fp16", "--fp16-no-flatten-grads"),
    "memory_efficient": ("--memory-efficient-fp16",),
    "bf16": ("--bf16",),
}


def train(data: Path, directory: Path, updates: int) -> dict[str, Any]:
    flags = ("--bf16", "--max-update", str(updates), "--no-epoch-checkpoints")
    state: dict[str, Any] = torch.load(toy.train_toy(data, directory, *flags), weights_only=True)
    return state


def masters(state: dict[str, Any]) -> list[Tensor]:
    return list(state["last_optimizer_state"][MASTERS])


def test_a_resumed_training_in_bf16_is_the_uninterrupted_one(toy_data: Path, tmp_path: Path) -> None:
    whole = train(toy_data, tmp_path / "whole", 9)
    for stop in (4, 9):
        parts = train(toy_data, tmp_path / "parts", stop)
    assert [name for name, value in whole["model"].items() if not torch.equal(value, parts["model"][name])] == []
    assert all(torch.equal(*pair) for pair in zip(masters(whole), masters(parts), strict=True))
    assert any(not torch.equal(master, master.bfloat16().float()) for master in masters(whole))


def test_stock_continues_from_rounded_weights(
    toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What stock wrote is loaded, with a warning; what is written here is loaded by stock."""
    whole = train(toy_data, tmp_path / "whole", 9)
    ours = FP16Optimizer.load_state_dict
    monkeypatch.setattr(FP16Optimizer, "state_dict", inspect.unwrap(FP16Optimizer.state_dict))
    old = train(toy_data, tmp_path / "old", 4)
    assert MASTERS not in old["last_optimizer_state"]
    with caplog.at_level(logging.WARNING):
        by_ours = train(toy_data, tmp_path / "old", 9)
    assert "no float32 master weights" in caplog.text
    monkeypatch.undo()

    monkeypatch.setattr(FP16Optimizer, "load_state_dict", inspect.unwrap(ours))
    train(toy_data, tmp_path / "new", 4)
    by_stock = train(toy_data, tmp_path / "new", 9)
    for resumed in (by_ours, by_stock):
        assert any(not torch.equal(value, resumed["model"][name]) for name, value in whole["model"].items())


def built(form: str, seed: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[nn.Parameter]]:
    """An optimizer in half precision; fairseq makes flat tensors on the current GPU, here on the CPU."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    config = toy.parse_training(Path("nowhere"), directory, *FORMS[form], "--fp16-scale-window", "3")
    torch.manual_seed(seed)
    kind = torch.bfloat16 if form == "bf16" else torch.float16
    weights = [nn.Parameter(torch.randn(size).to(kind)) for size in ((4, 3), (5,))]
    wrapper = MemoryEfficientFP16Optimizer if form == "memory_efficient" else FP16Optimizer
    return wrapper.build_optimizer(config, weights), weights


def updated(optimizer: Any, weights: list[nn.Parameter], numbers: range) -> list[float]:
    """Make updates; the fourth overflows. The loss scale after each."""
    scales = []
    for number in numbers:
        torch.manual_seed(number)
        optimizer.zero_grad()
        loss = sum((weight.float() * torch.randn(weight.shape)).sum() for weight in weights)
        optimizer.backward(loss * (float("inf") if number == 4 and optimizer.scaler else 1.0))
        try:
            optimizer.clip_grad_norm(1.0)
            optimizer.step()
        except OverflowError:
            pass
        scales.append(optimizer.scaler.loss_scale if optimizer.scaler else 1.0)
    return scales


@pytest.mark.parametrize("form", FORMS)
def test_an_optimizer_continues_bit_for_bit(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer, weights = built(form, 1, tmp_path, monkeypatch)
    updated(optimizer, weights, range(6))
    torch.save(optimizer.state_dict(), tmp_path / "state")
    half = [weight.detach().clone() for weight in weights]
    expected = updated(optimizer, weights, range(6, 14))

    other, others = built(form, 2, tmp_path, monkeypatch)
    for weight, value in zip(others, half, strict=True):
        weight.data.copy_(value)
    other.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    assert updated(other, others, range(6, 14)) == expected
    for one, two in zip(weights, others, strict=True):
        assert torch.equal(one, two)
    if optimizer.scaler is not None:
        assert [getattr(other.scaler, name) for name in COUNTS] == [getattr(optimizer.scaler, name) for name in COUNTS]
        assert len(set(expected)) > 1


def test_other_parts_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer, _ = built("flat", 1, tmp_path, monkeypatch)
    state = optimizer.state_dict()
    state[MASTERS] = [master[:3] for master in state[MASTERS]]
    with pytest.raises(UserError, match="other parameters, or in other parts"):
        optimizer.load_state_dict(state)


def test_the_scale_of_amp_is_kept(tmp_path: Path) -> None:
    """A scaler without a GPU is switched off, so this one is put in its place; its tensors are on the CPU."""
    config = toy.parse_training(Path("nowhere"), tmp_path)
    states = []
    for scale in (4.0, 128.0):
        optimizer = AMPOptimizer.build_optimizer(config, [nn.Parameter(torch.ones(2))])
        assert SCALER not in optimizer.state_dict()
        optimizer._grad_scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        states.append(optimizer.state_dict())
    optimizer.load_state_dict(states[0])
    assert optimizer.scaler.get_scale() == 4.0
