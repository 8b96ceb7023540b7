"""Mixtures from one buffer of states: derivatives, and a number of operations that grows linearly with depth."""

import itertools
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_plugins.core.history import mixing_weights
from fairseq_plugins.methods.shared.state_buffer import BufferedStates
from tests.models import tiny

LAYERS, SHAPE = 4, (3, 2, 5)


def numbers(*shape: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw, dtype=torch.float64).requires_grad_()


WEIGHTS, FIRST = numbers(LAYERS + 1, LAYERS + 1, seed=1), numbers(*SHAPE, seed=2)


def mixtures(weights: Tensor, first: Tensor) -> list[Tensor]:
    """All mixtures but the first of a stack whose layers are sines."""
    states = BufferedStates(weights, first, torch.sin(first))
    found = [states.mix()]
    for _ in range(len(weights) - 2):
        states.store(torch.sin(found[-1]))
        found.append(states.mix())
    return found


def twice(weights: Tensor, first: Tensor) -> Tensor:
    """A mixture that is taken twice, and used twice."""
    states = BufferedStates(weights, first, first.cos())
    return states.mix() + states.mix().square()


def test_derivatives_once_and_twice_where_either_may_need_none() -> None:
    functions = (
        lambda *given: (mixtures(*given)[-1], mixtures(*given)[1]),
        lambda *given: mixtures(*given)[1],  # the upper mixtures have no gradient
        twice,
    )
    weights, first = numbers(4, 4, seed=1), numbers(2, 1, 2, seed=2)
    for function, given in itertools.product(
        functions, ((weights, first), (weights.detach(), first), (weights, first.detach()))
    ):
        assert torch.autograd.gradcheck(function, given)
        assert torch.autograd.gradgradcheck(function, given)


def test_a_graph_gives_the_same_gradients_again() -> None:
    """A backward pass through a part of the graph leaves nothing behind for the next."""
    found = mixtures(WEIGHTS, FIRST)
    total = found[-1].square().sum()
    once = torch.autograd.grad(total, (WEIGHTS, FIRST), retain_graph=True)
    torch.autograd.grad(found[2].sum(), found[1], retain_graph=True)
    again = torch.autograd.grad(total, (WEIGHTS, FIRST), retain_graph=True)
    assert all(torch.equal(one, other) for one, other in zip(once, again, strict=True))


def test_autocast_leaves_mixtures_in_float32() -> None:
    weights, first = WEIGHTS.detach().float().requires_grad_(), FIRST.detach().float().requires_grad_()
    expected = mixtures(weights, first)[-1]
    wanted = torch.autograd.grad(expected.sum(), (weights, first))
    with torch.autocast("cpu", torch.bfloat16):
        found = mixtures(weights, first)[-1]
        gradients = torch.autograd.grad(found.sum(), (weights, first))
    assert torch.equal(found, expected)
    assert all(torch.equal(one, other) for one, other in zip(gradients, wanted, strict=True))


@pytest.mark.parametrize("first", [torch.bfloat16, torch.float32])
def test_states_of_two_types_have_mixtures_of_the_wider(first: torch.dtype) -> None:
    one, other = torch.ones(2, dtype=first, requires_grad=True), torch.ones(2, requires_grad=True)
    mixture = BufferedStates(torch.full((2, 2), 0.5, dtype=torch.bfloat16), one, other).mix()
    mixture.sum().backward()
    assert (mixture.dtype, one.grad.dtype, other.grad.dtype) == (torch.float32, first, torch.float32)
    assert one.grad.tolist() == [0.5, 0.5]


@torch.no_grad()
def test_mixing_weights_are_the_rows_of_denseformer() -> None:
    for dilation, expected in (
        ("1", [[1.0, 0, 0, 0], [4, 5, 0, 0], [8, 9, 10, 0], [12, 13, 14, 15]]),
        ("2", [[1.0, 0, 0, 0], [0, 5, 0, 0], [8, 0, 10, 0], [0, 13, 0, 15]]),
    ):
        stack = tiny("denseformer_transformer", denseformer_dilation=dilation).encoder
        assert torch.equal(stack.history.weight, torch.eye(4))  # Pre-LN at first
        stack.history.weight.copy_(torch.arange(16.0).view(4, 4))
        assert torch.equal(mixing_weights(stack), torch.tensor(expected))


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def of_history(layers: int, method: str = "dlcl", **options: str) -> Counter[str]:
    """Operations of the history of ``layers`` layers that do nothing else than to take the sine."""
    history = tiny(f"{method}_transformer", encoder_layers=layers, **options).encoder.history
    states = [torch.randn(4, 2, 16, requires_grad=True)]
    with Counting() as counting:
        for _ in range(layers):
            states = history.remember(states, torch.sin(history(states)))
        history(states).sum().backward()
    return counting.counts


@pytest.mark.parametrize(
    ("method", "options"),
    [("dlcl", {"dlcl_normalised": "no"}), ("dlcl", {"dlcl_normalised": "yes"}), ("denseformer", {})],
)
def test_operations_of_a_history_are_linear_in_its_depth(method: str, options: dict[str, str]) -> None:
    eight, sixteen, twenty_four = (of_history(layers, method, **options) for layers in (8, 16, 24))
    assert (twenty_four - sixteen) == (sixteen - eight)
    # For each of eight layers: a mixture, and the gradients of a state and of a column of weights.
    assert (sixteen - eight)["mv"] == 8 * 3
