"""Adam by lists of tensors: the weights, the state and the checkpoints of fairseq's, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.optim.adam import Adam as StockAdam
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fairseq_plugins.errors import UserError
from fairseq_plugins.training.foreach_adam import Adam, FairseqForeachAdam
from tests import toy


def same(found: Any, wanted: Any) -> bool:
    """Whether two states are equal in every bit, type and name."""
    if isinstance(wanted, Tensor):
        return found.dtype == wanted.dtype and torch.equal(found, wanted)
    if isinstance(wanted, dict):
        return list(found) == list(wanted) and all(same(found[name], value) for name, value in wanted.items())
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(same(*pair) for pair in zip(found, wanted, strict=True))
    return type(found) is type(wanted) and found == wanted


SETTINGS: dict[str, Any] = {
    "shapes": st.lists(st.lists(st.integers(0, 70), min_size=0, max_size=2), min_size=1, max_size=5),
    "betas": st.sampled_from([(0.9, 0.98), (0.9, 0.999), (0.0, 0.5)]),
    "eps": st.sampled_from([1e-9, 1e-8, 1e-3]),
    "decay": st.sampled_from([0.0, 0.01]),
    "seed": st.integers(0, 99),
}
"""What an update of Adam depends on, for every form of it."""


@settings(max_examples=40, deadline=None)
@given(**SETTINGS, dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
def test_weights_and_state_are_those_of_fairseq(
    shapes: list[list[int]],
    betas: tuple[float, float],
    eps: float,
    decay: float,
    dtype: torch.dtype,
    seed: int,
) -> None:
    """With lengths that no vector register divides, a tensor without a gradient at times, and a state handed over."""
    draw = torch.Generator().manual_seed(seed)
    start = [torch.randn(shape, generator=draw).to(dtype) for shape in shapes]
    pairs = []
    for kind in (StockAdam, Adam):
        params = [nn.Parameter(value.clone()) for value in start]
        pairs.append((params, kind(params, lr=0.01, betas=betas, eps=eps, weight_decay=decay)))
    for update in range(4):
        for number, (one, other) in enumerate(zip(*(params for params, _ in pairs), strict=True)):
            one.grad = torch.randn(one.shape, generator=draw).to(dtype)
            other.grad = one.grad.clone()
            if number == update:
                one.grad = other.grad = None
        for _, optimizer in pairs:
            optimizer.step()
        (wanted, stock), (found, own) = pairs
        assert same([p.data for p in found], [p.data for p in wanted])
        assert same(own.state_dict(), stock.state_dict())
        if update == 1:  # each continues with what the other has saved
            states = stock.state_dict(), own.state_dict()
            own.load_state_dict(states[0])
            stock.load_state_dict(states[1])


def checkpoint(data: Path, directory: Path, updates: int, *flags: str) -> dict[str, Any]:
    common = ("--max-update", str(updates), "--no-epoch-checkpoints", "--weight-decay", "0.01", "--save-interval", "1")
    return torch.load(toy.train_toy(data, directory, *common, *flags), weights_only=True)


PRECISIONS = {
    "single": (),
    "memory_efficient_fp16": ("--memory-efficient-fp16", "--fp16-init-scale", "4"),
    "fp16": ("--fp16", "--fp16-no-flatten-grads", "--fp16-init-scale", "4"),
    "memory_efficient_bf16": ("--memory-efficient-bf16",),
}


@pytest.mark.parametrize(
    "precision", [pytest.param(name, marks=[pytest.mark.slow] if name != "single" else []) for name in PRECISIONS]
)
def test_a_training_has_the_checkpoint_of_adam_after_a_change_of_optimizer(
    precision: str, toy_data: Path, tmp_path: Path
) -> None:
    flags = PRECISIONS[precision]
    wanted = checkpoint(toy_data, tmp_path / "stock", 6, *flags)
    checkpoint(toy_data, tmp_path / "mixed", 3, *flags)
    found = checkpoint(toy_data, tmp_path / "mixed", 6, *flags, "--optimizer", "foreach_adam")
    assert same(found["model"], wanted["model"])
    assert same(found["last_optimizer_state"], wanted["last_optimizer_state"])
    assert found["optimizer_history"][-1]["optimizer_name"] == wanted["optimizer_history"][-1]["optimizer_name"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("largest", [0.0, 0.5, 1e6])
@pytest.mark.parametrize("tensors", [1, 9])
def test_gradients_are_clipped_as_by_fairseq(tensors: int, largest: float, dtype: torch.dtype) -> None:
    """Norm and gradients bit for bit, with the norms of other processes, and a parameter without a gradient."""
    draw = torch.Generator().manual_seed(tensors)
    gradients = [torch.randn(3 * size, 1 + size % 5, generator=draw).to(dtype) for size in range(1, tensors + 1)]
    found = []
    for kind in (FairseqAdam, FairseqForeachAdam):
        params = [nn.Parameter(torch.zeros_like(one)) for one in gradients]
        optimizer = kind(FairseqAdamConfig(lr=[0.1], adam_betas="(0.9, 0.98)"), [*params, nn.Parameter(torch.zeros(2))])
        for p, gradient in zip(params, gradients, strict=True):
            p.grad = gradient.clone()
        norm = optimizer.clip_grad_norm(largest, lambda own: (own**2 + 1).sqrt())
        found.append((norm, [p.grad for p in params]))
    assert same(*found[::-1])
    assert found[0][0].dtype == torch.float32


def test_a_list_of_tensors_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    original = torch._foreach_addcdiv_
    monkeypatch.setattr(torch, "_foreach_addcdiv_", lambda w, *a, **k: (calls.append(len(w)), original(w, *a, **k)))
    params = [nn.Parameter(torch.ones(3)) for _ in range(7)]
    for p in params:
        p.grad = torch.ones(3)
    Adam(params).step()
    monkeypatch.setattr(Adam, "chunk_on_cpu", 6)
    Adam(params).step()
    assert calls == [7, 2, 2, 2, 1]


@pytest.mark.parametrize("name", ["foreach_adam", "fused_adam"])
def test_statistics_in_half_precision_are_refused(name: str, toy_data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{name} has no --fp16-adam-stats"):
        checkpoint(toy_data, tmp_path, 1, "--optimizer", name, "--fp16-adam-stats")
