"""Methods that only place or scale LayerNorms: Peri-LN, LayerNorm Scaling, Mix-LN."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_plugins.core.method import Site
from fairseq_plugins.methods.mix_ln import post_layers
from tests.building import batch, logits, tiny
from tests.checkpoints.test_fold import assert_same, folded, tiny_model
from tests.methods.by_equation import Branch, SubLayer, assert_is, first_norm, ln


def on_top(stack: Any) -> Any:
    return lambda start, x: ln(x, stack.layer_norm)


def test_peri_ln_is_the_equation() -> None:
    def make(stack: Any) -> tuple[SubLayer, Any]:
        def sub_layer(layer: Any, site: Site, depth: int, branch: Branch, x: Tensor) -> Tensor:
            return x + ln(branch(ln(x, first_norm(layer, site))), getattr(layer, f"{site.value}_branch_norm"))

        return sub_layer, on_top(stack)

    assert_is("peri_ln_transformer", make)


def test_layernorm_scaling_is_the_equation() -> None:
    def make(stack: Any) -> tuple[SubLayer, Any]:
        def sub_layer(layer: Any, site: Site, depth: int, branch: Branch, x: Tensor) -> Tensor:
            return x + branch(ln(x, first_norm(layer, site)) / math.sqrt(depth))

        return sub_layer, on_top(stack)

    assert_is("layernorm_scaling_transformer", make)


def test_layernorm_scaling_has_the_weights_of_pre_ln_and_folds_into_it(tmp_path: Path) -> None:
    model, values = tiny_model("layernorm_scaling_transformer")
    plain = tiny("pre_ln_transformer")
    assert model.state_dict().keys() == plain.state_dict().keys()
    stock = folded(tmp_path, "layernorm_scaling_transformer", model, values)
    assert_same(model, stock)
    for mine, theirs in zip(model.decoder.layers, stock.decoder.layers, strict=True):
        factor = 1 / math.sqrt(mine.depth)
        for one in ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"):
            torch.testing.assert_close(getattr(theirs, one).weight, factor * getattr(mine, one).weight)
            torch.testing.assert_close(getattr(theirs, one).bias, factor * getattr(mine, one).bias)


@pytest.mark.parametrize("share", ["0.25", "0.5,0.5", "0.4,0.9"])
def test_mix_ln_is_the_equation(share: str) -> None:
    shares = {True: float(share.split(",")[0]), False: float(share.split(",")[-1])}

    def make(stack: Any) -> tuple[SubLayer, Any]:
        post = math.floor(len(stack.layers) * shares[stack.design.stack.value == "encoder"])

        def sub_layer(layer: Any, site: Site, depth: int, branch: Branch, x: Tensor) -> Tensor:
            norm = first_norm(layer, site)
            return ln(x + branch(x), norm) if depth <= post else x + branch(ln(x, norm))

        return sub_layer, on_top(stack)

    assert_is("mix_ln_transformer", make, mix_post=share)


@pytest.mark.parametrize(
    ("layers", "share", "number"),
    [(12, 0.25, 3), (24, 0.25, 6), (6, 0.25, 1), (18, 0.25, 4), (3, 0.25, 0), (100, 0.29, 29), (7, 0.0, 0)],
)
def test_mix_ln_rounds_the_number_of_post_ln_layers_down(layers: int, share: float, number: int) -> None:
    assert post_layers(layers, share) == number


def test_mix_ln_without_post_ln_layers_is_pre_ln_to_the_bit() -> None:
    model, pre_ln = tiny("mix_ln_transformer", mix_post="0"), tiny("pre_ln_transformer")
    pre_ln.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(logits(model.eval(), batch()), logits(pre_ln.eval(), batch()))
