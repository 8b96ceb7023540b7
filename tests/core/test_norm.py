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
