"""Adam in one pass: the weights and the state of fairseq's to rounding, and its checkpoints."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.optim.adam import Adam as StockAdam
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fairseq_plugins.training.fused_adam import FusedAdam
from tests.training.test_foreach_adam import SETTINGS, checkpoint

LR = 0.01
# Of a step of size LR, and of the moments, each of which a few roundings enter.
TOLERANCE = 16 * torch.finfo(torch.float32).eps


def make(kind: type[torch.optim.Optimizer], start: list[Tensor], **flags: Any) -> torch.optim.Optimizer:
    return kind([nn.Parameter(value.clone()) for value in start], lr=LR, **flags)


def assert_one_update_is_the_same(stock: StockAdam, own: FusedAdam, tolerance: float, size: float) -> None:
    """From the same weights and state, and gradients of ``size``."""
    wanted, found = (optimizer.param_groups[0]["params"] for optimizer in (stock, own))
    before = [p.detach().clone() for p in wanted]
    stock.step()
    own.step()
    for old, one, other in zip(before, wanted, found, strict=True):
        # The weights themselves are rounded once more.
        assert ((one - other).abs() <= tolerance * ((one - old).abs() + old.abs() + LR)).all()
        ours, theirs = own.state.get(other, {}), stock.state.get(one, {})
        assert ours.keys() == theirs.keys()
        if theirs:
            assert ours["step"] == theirs["step"]
            torch.testing.assert_close(ours["exp_avg"], theirs["exp_avg"], rtol=0, atol=5 * size * tolerance)
            torch.testing.assert_close(ours["exp_avg_sq"], theirs["exp_avg_sq"], rtol=tolerance, atol=0)


@settings(max_examples=40, deadline=None)
@given(
    **SETTINGS,
    size=st.sampled_from([1e-6, 1e-3, 1.0]),
    precision=st.sampled_from([(torch.float32, TOLERANCE), (torch.float64, 1e-13)]),
)
def test_each_update_is_that_of_fairseq(
    shapes: list[list[int]],
    betas: tuple[float, float],
    eps: float,
    decay: float,
    size: float,
    precision: tuple[torch.dtype, float],
    seed: int,
) -> None:
    """With gradients as small as eps, where its place matters, and a tensor without a gradient at times."""
    dtype, tolerance = precision
    draw = torch.Generator().manual_seed(seed)
    start = [torch.randn(shape, generator=draw, dtype=dtype) for shape in shapes]
    stock, own = (make(kind, start, betas=betas, eps=eps, weight_decay=decay) for kind in (StockAdam, FusedAdam))
    for update in range(4):
        for number, (one, other) in enumerate(
            zip(stock.param_groups[0]["params"], own.param_groups[0]["params"], strict=True)
        ):
            other.data.copy_(one.data)  # so that the rounding of this update is all that is seen
            one.grad = None if number == update else size * torch.randn(one.shape, generator=draw, dtype=dtype)
            other.grad = None if one.grad is None else one.grad.clone()
        own.load_state_dict(copy.deepcopy(stock.state_dict()))
        assert_one_update_is_the_same(stock, own, tolerance, size)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_updated_in_float32(dtype: torch.dtype) -> None:
    """A weight in half precision is the float32 result, rounded; its moments stay in float32."""
    draw = torch.Generator().manual_seed(0)
    value, gradient = (torch.randn(1000, generator=draw).to(dtype) for _ in range(2))
    half, single = nn.Parameter(value.clone()), nn.Parameter(value.float())
    half.grad, single.grad = gradient.clone(), gradient.float()
    for p in (half, single):
        optimizer = FusedAdam([p], lr=LR, betas=(0.9, 0.98))
        optimizer.step()
        assert optimizer.state[p]["exp_avg"].dtype == torch.float32
    assert torch.equal(half.data, single.data.to(dtype))


def test_a_training_changes_to_it_and_back(toy_data: Path, tmp_path: Path) -> None:
    """The checkpoint names ``adam``, and adam goes on from it; the weights are adam's, next to the way they went."""
    wanted = checkpoint(toy_data, tmp_path / "stock", 6)
    early = checkpoint(toy_data, tmp_path / "mixed", 2)
    checkpoint(toy_data, tmp_path / "mixed", 4, "--optimizer", "fused_adam")
    found = checkpoint(toy_data, tmp_path / "mixed", 6)
    assert found["optimizer_history"][-1]["optimizer_name"] == wanted["optimizer_history"][-1]["optimizer_name"]
    assert found["optimizer_history"][-1]["num_updates"] == 6
    for name, value in wanted["model"].items():
        if name.endswith("k_proj.bias"):  # softmax does not see it: its gradient is rounding, and Adam follows the sign
            continue
        assert (found["model"][name] - value).norm() <= 1e-2 * (value - early["model"][name]).norm(), name
