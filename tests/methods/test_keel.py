"""Keel: a LayerNorm before and after each sub-layer but the first, and a stream times the number of sub-layers."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from fairseq_plugins.core.method import Site
from fairseq_plugins.core.residual import PlainResidual, ScaledStream
from fairseq_plugins.errors import UserError
from tests.building import residuals, tiny
from tests.methods.by_equation import Branch, SubLayer, assert_is, first_norm, ln

ARCH = "keel_transformer"


@pytest.mark.parametrize("alpha", ["0", "2.5"])
def test_stacks_are_the_equation(alpha: str) -> None:
    def make(stack: Any) -> tuple[SubLayer, Any]:
        cross = stack.layers[0].encoder_attn if hasattr(stack.layers[0], "encoder_attn") else None
        factor = float(alpha) or len(stack.layers) * (2 if cross is None else 3)

        def sub_layer(layer: Any, site: Site, depth: int, branch: Branch, x: Tensor) -> Tensor:
            joined = branch(ln(x, first_norm(layer, site)))
            if depth == 1 and site is Site.SELF:
                return x + joined
            return ln(factor * x + joined, getattr(layer, f"{site.value}_after_norm"))

        return sub_layer, lambda start, x: x

    assert_is(ARCH, make, keel_alpha=alpha)


@pytest.mark.parametrize(
    ("arch", "values", "factors"),
    [
        ("keel_transformer", {}, {"encoder": 6.0, "decoder": 6.0}),
        ("keel_transformer", {"decoder_layers": 5}, {"encoder": 6.0, "decoder": 15.0}),
        ("keel_transformer", {"attention": "matt"}, {"encoder": 6.0, "decoder": 4.0}),
        ("keel_transformer_lm", {}, {"decoder": 6.0}),
        ("keel_s2t_transformer", {}, {"encoder": 6.0, "decoder": 6.0}),
    ],
    ids=str,
)
def test_the_factor_is_the_number_of_sub_layers(arch: str, values: dict[str, Any], factors: dict[str, float]) -> None:
    model = tiny(arch, **values)
    for stack, factor in factors.items():
        first, *others = residuals(getattr(model, stack)).values()
        assert type(first) is PlainResidual
        assert all(type(one) is ScaledStream and one.scale == factor for one in others)
        assert len(others) == factor - 1


def test_the_first_sub_layer_of_a_merged_decoder_has_no_norm_after_it() -> None:
    bottom, upper = tiny(ARCH, attention="matt").decoder.layers
    assert not hasattr(bottom, "encoder_attn_after_norm")
    assert hasattr(upper, "encoder_attn_after_norm")


@pytest.mark.parametrize("norm", ["pre", "none", "peri"])
def test_a_scaled_stream_without_a_norm_is_refused(norm: str) -> None:
    with pytest.raises(UserError, match=f"--residual keel scales the stream .* --norm keel or post, not {norm}"):
        tiny("deep_transformer", norm=norm, residual="keel")
