"""NormFormer: its equation in plain torch, and fairseq's own layers with the same additions."""

from __future__ import annotations

import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase

from tests.methods.by_equation import stirred
from tests.rounding import assert_same_to_rounding

ARCH = "normformer_transformer"


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
