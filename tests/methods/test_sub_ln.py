"""Sub-LN: the norm inside each branch, and the gains that grow with the logarithm of the depths."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.initialisation import linear_maps
from fairseq_plugins.core.method import Site, Stack
from fairseq_plugins.methods.sub_ln import gamma
from tests.building import tiny
from tests.methods.by_equation import Branch, SubLayer, assert_is, first_norm, ln, same

ARCH = "sub_ln_transformer"
WIDE: dict[str, Any] = {
    f"{stack}_{size}": 64 for stack in ("encoder", "decoder") for size in ("embed_dim", "ffn_embed_dim")
}


def design(stack: Stack, encoder_layers: int, decoder_layers: int) -> StackDesign:
    return StackDesign(stack, {}, encoder_layers, decoder_layers, 64, 64, 2, 0.0, SimpleNamespace())


def test_gains_of_the_text() -> None:
    """Figure 2, for 18 encoder and 6 decoder layers, and for stacks alone."""
    translation = [design(stack, 18, 6) for stack in Stack]
    assert gamma(translation[0], 2) == pytest.approx(math.sqrt(math.log(18) * math.log(36) / 3), rel=1e-12)
    assert gamma(translation[1], 3) == pytest.approx(math.sqrt(math.log(18)), rel=1e-12)
    assert gamma(design(Stack.DECODER, 0, 12), 2) == pytest.approx(math.sqrt(math.log(24)), rel=1e-12)
    assert gamma(design(Stack.ENCODER, 12, 0), 2) == pytest.approx(math.sqrt(math.log(24)), rel=1e-12)
    assert gamma(translation[0], 2) == pytest.approx(math.sqrt(2.890372 * 3.583519 / 3), abs=1e-6)


@pytest.mark.parametrize("cross", ["yes", "no"])
def test_stacks_are_the_equation(cross: str) -> None:
    def make(stack: Any) -> tuple[SubLayer, Any]:
        def sub_layer(layer: Any, site: Site, depth: int, branch: Branch, x: Tensor) -> Tensor:
            last = layer.fc2 if site is Site.FFN else getattr(layer, site.value).out_proj
            plain = site is Site.CROSS and cross == "no"
            return x + branch(ln(x, first_norm(layer, site)), inner=same if plain else lambda z: ln(z, last.norm))

        return sub_layer, lambda start, x: ln(x, stack.layer_norm)

    assert_is(ARCH, make, sub_cross=cross)


def test_the_released_gains_scale_what_fairseq_draws() -> None:
    model, base = tiny(ARCH, sub_ln_init="released"), tiny("deep_transformer", norm="sub", base_init="fairseq")
    gains = {"encoder": math.sqrt(math.log(6) * math.log(6) / 3), "decoder": math.sqrt(math.log(6))}
    for stack, gain in gains.items():
        for mine, plain in zip(getattr(model, stack).layers, getattr(base, stack).layers, strict=True):
            for (name, found), (_, drawn) in zip(linear_maps(mine), linear_maps(plain), strict=True):
                larger = name.split(".")[-1] in ("v_proj", "out_proj", "fc1", "fc2") and "encoder_attn" not in name
                for one, other in ((found.weight, drawn.weight), (found.bias, drawn.bias)):
                    torch.testing.assert_close(one, other * (gain if larger else 1), msg=name)


def test_the_text_draws_by_xavier_s_normal_rule() -> None:
    """Deviation gain * sqrt(2 / (d_in + d_out)); 4,096 numbers estimate it to within 1.1 %, so 5 % is safe."""
    model = tiny(ARCH, **WIDE)
    gains = {"encoder": math.sqrt(math.log(6) * math.log(6) / 3), "decoder": math.sqrt(math.log(6))}
    for stack, gain in gains.items():
        for layer in getattr(model, stack).layers:
            for name, found in linear_maps(layer):
                larger = name.split(".")[-1] in ("v_proj", "out_proj", "fc1", "fc2") and "encoder_attn" not in name
                expected = (gain if larger else 1) * math.sqrt(2 / (found.in_features + found.out_features))
                assert float(found.weight.detach().std()) == pytest.approx(expected, rel=0.05), name
                assert float(found.weight.detach().abs().max()) > 2.5 * expected, (
                    "a uniform draw ends at 1.73 deviations"
                )
                assert not found.bias.any()
