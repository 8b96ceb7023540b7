"""Adam by lists of tensors is fairseq's bit for bit; in one pass over the memory it is fairseq's to rounding."""

import copy
import itertools
from typing import Any

import torch
from fairseq.optim.adam import Adam as StockAdam
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fairseq_plugins.training import adam_base
from fairseq_plugins.training.fast_adam import Adam, FairseqForeachAdam, FusedAdam
from tests.faults.exact import differences
from tests.training.optimizing import LR

# Bounds for a step of size LR, and for the moments, each of which a few roundings enter.
TOLERANCE = 16 * torch.finfo(torch.float32).eps
SETTINGS: dict[str, Any] = {
    "shapes": st.lists(st.lists(st.integers(0, 70), min_size=0, max_size=2), min_size=1, max_size=5),
    "betas": st.sampled_from([(0.9, 0.98), (0.9, 0.999), (0.0, 0.5)]),
    "eps": st.sampled_from([1e-9, 1e-8, 1e-3]),
    "weight_decay": st.sampled_from([0.0, 0.01]),
    "seed": st.integers(0, 99),
}
"""Settings of an update of Adam, for every form of it."""


def make(kind: type[torch.optim.Optimizer], start: list[Tensor], **flags: Any) -> torch.optim.Optimizer:
    return kind([nn.Parameter(value.clone()) for value in start], lr=LR, **flags)


@given(**SETTINGS, dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
def test_weights_and_state_are_fairseqs(shapes: list[list[int]], dtype: torch.dtype, seed: int, **values: Any) -> None:
    """With lengths that no vector register divides, a tensor without a gradient at times, and a state handed over."""
    draw = torch.Generator().manual_seed(seed)
    start = [torch.randn(shape, generator=draw).to(dtype) for shape in shapes]
    stock, own = (make(kind, start, **values) for kind in (StockAdam, Adam))
    wanted, found = (optimizer.param_groups[0]["params"] for optimizer in (stock, own))
    for update in range(4):
        for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
            one.grad = torch.randn(one.shape, generator=draw).to(dtype)
            other.grad = one.grad.clone()
            if number == update:
                one.grad = other.grad = None
        stock.step()
        own.step()
        assert differences([p.data for p in found], [p.data for p in wanted]) == []
        assert differences(own.state_dict(), stock.state_dict()) == []
        if update == 1:  # each continues with what the other has saved
            states = stock.state_dict(), own.state_dict()
            own.load_state_dict(states[0])
            stock.load_state_dict(states[1])


def clipped(kind: type[FairseqAdam], gradients: list[Tensor], largest: float) -> tuple[Tensor, list[Tensor | None]]:
    """The norm, with that of another process, and the gradients, next to a parameter without one."""
    params = [nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    optimizer = kind(FairseqAdamConfig(lr=[0.1], adam_betas="(0.9, 0.98)"), [*params, nn.Parameter(torch.zeros(2))])
    for p, gradient in zip(params, gradients, strict=True):
        p.grad = gradient.clone()
    return optimizer.clip_grad_norm(largest, lambda own: (own**2 + 1).sqrt()), [p.grad for p in params]


def test_gradients_are_clipped_as_by_fairseq() -> None:
    """Norm and gradients bit for bit."""
    draw = torch.Generator().manual_seed(9)
    gradients = [torch.randn(3 * size, 1 + size % 5, generator=draw) for size in range(1, 10)]
    for tensors, largest, dtype in itertools.product((1, 9), (0.0, 0.5, 1e6), (*adam_base.HALF, torch.float32)):
        lists = [gradient.to(dtype) for gradient in gradients[:tensors]]
        norm, changed = clipped(FairseqForeachAdam, lists, largest)
        assert differences((norm, changed), clipped(FairseqAdam, lists, largest)) == [], (tensors, largest, dtype)
        assert norm.dtype == torch.float32


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


@given(
    **SETTINGS,
    size=st.sampled_from([1e-6, 1e-3, 1.0]),
    precision=st.sampled_from([(torch.float32, TOLERANCE), (torch.float64, 1e-13)]),
)
def test_each_update_is_that_of_fairseq(shapes, size, precision, seed, **values):
    """With gradients as small as eps, where its place matters, and a tensor without a gradient at times."""
    dtype, tolerance = precision
    draw = torch.Generator().manual_seed(seed)
    start = [torch.randn(shape, generator=draw, dtype=dtype) for shape in shapes]
    stock, own = (make(kind, start, **values) for kind in (StockAdam, FusedAdam))
    for update in range(4):
        pairs = zip(*(optimizer.param_groups[0]["params"] for optimizer in (stock, own)), strict=True)
        for number, (one, other) in enumerate(pairs):
            other.data.copy_(one.data)  # so that the rounding of this update is all that is seen
            one.grad = None if number == update else size * torch.randn(one.shape, generator=draw, dtype=dtype)
            other.grad = None if one.grad is None else one.grad.clone()
        own.load_state_dict(copy.deepcopy(stock.state_dict()))
        assert_one_update_is_the_same(stock, own, tolerance, size)
