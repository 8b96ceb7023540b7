"""ResiDual: a Post-LN stream and the sum of all branches beside it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_plugins.core.method import Site
from fairseq_plugins.errors import UserError
from tests.building import batch, logits, tiny
from tests.methods.by_equation import Branch, SubLayer, assert_is, first_norm, ln

ARCH = "resi_dual_transformer"


@pytest.mark.parametrize(("scale", "alpha"), [(1.0, 1.0), (0.05, 1.0), (0.5, 0.7)])
def test_stacks_are_the_equation(scale: float, alpha: float) -> None:
    def make(stack: Any) -> tuple[SubLayer, Any]:
        branches: list[Tensor] = []

        def sub_layer(layer: Any, site: Site, depth: int, branch: Branch, x: Tensor) -> Tensor:
            branches.append(branch(x))
            return ln(x + branches[-1], first_norm(layer, site))

        def finish(start: Tensor, x: Tensor) -> Tensor:
            total = scale * start + sum(scale * one for one in branches)
            return alpha * x + ln(total, stack.side_stream.norm, epsilon=1e-7)

        return sub_layer, finish

    assert_is(ARCH, make, resi_dual_scale=str(scale), resi_dual_alpha=str(alpha))


def test_without_the_second_stream_it_is_post_ln_to_the_bit() -> None:
    model, post_ln = tiny(ARCH, dropout=0.2), tiny("post_ln_transformer", dropout=0.2)
    weights = model.state_dict()
    post_ln.load_state_dict({name: weights[name] for name in post_ln.state_dict()}, strict=True)
    with torch.no_grad():
        for stack in (model.encoder, model.decoder):
            stack.side_stream.norm.weight.zero_()
    for train in (True, False):
        assert torch.equal(*(logits(one.train(train), batch(), seed=5) for one in (model, post_ln)))


def test_the_scale_cancels_in_the_layer_norm() -> None:
    """But for epsilon, 1e-7 beside variances of about one."""
    one, other = (tiny(ARCH, resi_dual_scale=scale).double().eval() for scale in ("1", "0.25"))
    torch.testing.assert_close(logits(one, batch()), logits(other, batch()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "none", "branch"])
def test_a_stream_that_is_not_normalised_is_refused(norm: str) -> None:
    with pytest.raises(UserError, match=f"resi_dual keeps the sum of all branches .* use --norm post, not {norm}"):
        tiny("deep_transformer", norm=norm, residual="resi_dual")
