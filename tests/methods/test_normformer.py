"""NormFormer: its equation in plain torch, and fairseq's own layers with the same additions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor

from fairseq_plugins.core.method import Site
from tests.building import batch, logits, tiny
from tests.methods.by_equation import Branch, SubLayer, assert_is, first_norm, ln, stirred
from tests.rounding import assert_same_to_rounding

ARCH = "normformer_transformer"


@pytest.mark.parametrize("residual", ["plain", "res_scale"])
def test_stacks_are_the_equation(residual: str) -> None:
    def make(stack: Any) -> tuple[SubLayer, Any]:
        def sub_layer(layer: Any, site: Site, depth: int, branch: Branch, x: Tensor) -> Tensor:
            z = ln(x, first_norm(layer, site))
            if site is Site.FFN:
                stream = x * layer.ffn_residual.scale if residual == "res_scale" else x
                return stream + branch(z, inner=lambda hidden: ln(hidden, layer.fc2.norm))
            attention = getattr(layer, site.value)
            factors = torch.cat([g.expand(attention.head_dim) for g in attention.out_proj.heads.scale])
            output = branch(z, inner=lambda heads: heads * factors)
            return x + ln(output, getattr(layer, f"{site.value}_branch_norm"))

        return sub_layer, lambda start, x: ln(x, stack.layer_norm)

    assert_is(ARCH, make, residual=residual)


def test_a_layer_is_fairseq_s_with_its_four_additions() -> None:
    """Those of ``scale_heads``, ``scale_attn``, ``scale_fc`` and ``scale_resids``, in a decoder without an encoder."""
    model = stirred(f"{ARCH}_lm", head_scale_at="output", residual="res_scale")
    mine = model.decoder.layers[0]
    config = TransformerConfig.from_namespace(model.decoder.cfg)
    for name in ("scale_heads", "scale_attn", "scale_fc", "scale_resids"):
        setattr(config, name, True)
    config.decoder.normalize_before = True
    stock = TransformerDecoderLayerBase(config, no_encoder_attn=True).double().eval()
    names = {
        "self_attn_branch_norm": "attn_ln",
        "fc2.norm": "ffn_layernorm",
        "self_attn.out_proj.heads.scale": "c_attn",
        "ffn_residual.scale": "w_resid",
    }
    state = {}
    for name, value in mine.state_dict().items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        state[name] = value
    stock.load_state_dict(state)
    x = torch.randn(5, 2, mine.embed_dim, dtype=torch.float64)
    mask = torch.full((5, 5), float("-inf"), dtype=torch.float64).triu(1)
    expected = stock(x, self_attn_mask=mask)[0]
    found = mine(x, None, None, None, self_attn_mask=mask, self_attn_padding_mask=None, need_attn=False)[0]
    assert_same_to_rounding(found, expected, 1e-6)


def test_a_new_model_computes_without_the_factors() -> None:
    model, other = tiny(ARCH), tiny(ARCH, attention="softmax")
    other.load_state_dict({name: value for name, value in model.state_dict().items() if "heads.scale" not in name})
    torch.testing.assert_close(logits(model.eval(), batch()), logits(other.eval(), batch()))
