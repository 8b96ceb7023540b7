"""Where the LayerNorms stand, by what a sub-layer computes."""

import torch
from torch import nn

from tests.models import tiny


def test_dropout_is_inside_of_the_branch() -> None:
    """LN(dropout(F)): with everything dropped but nothing else the LayerNorm's bias remains, so the sum is the stream
    plus that bias."""
    layer = tiny("gpt2_norm_transformer", dropout=0.5).train().encoder.layers[0]
    layer.dropout_module.forward = torch.zeros_like
    x = torch.randn(5, 2, 16)
    torch.testing.assert_close(layer(x, None)[0], x)
    nn.init.constant_(layer.final_layer_norm.bias, 3.0)
    torch.testing.assert_close(layer(x, None)[0], x + 3.0)


def norms_of(model: nn.Module) -> dict[str, int]:
    names = [name for name, module in model.named_modules() if isinstance(module, nn.LayerNorm)]
    return {"layers": sum(".layers." in name for name in names), "top": sum(".layers." not in name for name in names)}


SUB_LAYERS = 2 * 3 + 3 * 2  # of the tiny models


COUNTS: list[tuple[str, dict[str, object], int, int]] = [
    ("pre_ln_transformer", {"no_decoder_final_norm": True}, SUB_LAYERS, 1),
    ("gpt2_norm_transformer", {"norm_on_top": "yes"}, SUB_LAYERS, 2),
    ("b2t_without_ln_transformer", {"norm_on_top": "yes,no"}, 0, 1),
    ("b2t_without_ln_transformer", {"norm_on_top": "yes", "no_decoder_final_norm": True}, 0, 1),
]
"""Of methods without settings ``tests/recorded/weights`` has every norm by its name."""


def test_number_of_layer_norms() -> None:
    for arch, settings, layers, top in COUNTS:
        assert norms_of(tiny(arch, **settings)) == {"layers": layers, "top": top}, (arch, settings)
