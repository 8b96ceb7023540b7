"""DenseFormer: weighted averages over the outputs below, which start as the identity."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_plugins.core.history import mixing_weights
from fairseq_plugins.core.method import Site
from fairseq_plugins.errors import UserError
from tests.building import batch, logits, tiny
from tests.methods.by_equation import Branch, SubLayer, assert_is, first_norm, ln

ARCH = "denseformer_transformer"


@pytest.mark.parametrize(("dilation", "period"), [(1, 1), (2, 1), (1, 2), (2, 2), (3, 1)])
def test_stacks_are_the_equation(dilation: int, period: int) -> None:
    """After layer i, if i is a multiple of the period: sum over j = i, i - dilation, ... of a_ij X_j."""

    def make(stack: Any) -> tuple[SubLayer, Any]:
        def sub_layer(layer: Any, site: Site, depth: int, branch: Branch, x: Tensor) -> Tensor:
            return x + branch(ln(x, first_norm(layer, site)))

        return sub_layer, lambda start, x: ln(x, stack.layer_norm)

    def mix(stack: Any, states: list[Tensor]) -> Tensor:
        i = len(states) - 1
        if i % period:
            return states[i]
        weight = stack.history.weight
        return sum(weight[i, j] * states[j] for j in range(i + 1) if (i - j) % dilation == 0)

    settings = {"denseformer_dilation": str(dilation), "denseformer_period": str(period)}
    assert_is(ARCH, make, mix, **settings)


def test_it_starts_as_pre_ln() -> None:
    """Products with one and sums with zero are exact."""
    model, pre_ln = tiny(ARCH), tiny("pre_ln_transformer")
    weights = model.state_dict()
    pre_ln.load_state_dict({name: weights[name] for name in pre_ln.state_dict()}, strict=True)
    assert torch.equal(*(logits(one.eval(), batch()) for one in (model, pre_ln)))


@pytest.mark.parametrize(
    ("dilation", "expected"),
    [
        ("1", [[1.0, 0, 0, 0], [4, 5, 0, 0], [8, 9, 10, 0], [12, 13, 14, 15]]),
        ("2", [[1.0, 0, 0, 0], [0, 5, 0, 0], [8, 0, 10, 0], [0, 13, 0, 15]]),
    ],
)
def test_mixing_weights_are_the_rows(dilation: str, expected: list[list[float]]) -> None:
    stack = tiny(ARCH, denseformer_dilation=dilation).encoder
    with torch.no_grad():
        stack.history.weight.copy_(torch.arange(16.0).view(4, 4))
    assert torch.equal(mixing_weights(stack), torch.tensor(expected))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"denseformer_dilation": "0"}, "--denseformer-dilation must be at least 1, not 0"),
        ({"denseformer_period": "-1"}, "--denseformer-period must be at least 1, not -1"),
        ({"denseformer_period": "3"}, "--denseformer-period 3 is more than the 2 layers of the decoder"),
        ({"encoder_layerdrop": 0.1}, "needs every layer's output"),
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        tiny(ARCH, **values)
