"""SpanNorm: a stack against the equation, from its own modules, and what goes with it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fairseq_plugins.core.residual import PlainResidual
from fairseq_plugins.errors import UserError
from tests.building import batch, logits, tiny

ARCH = "span_norm_transformer"
T, S, B, C = 5, 7, 3, 16


def feed_forward(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer.fc2(torch.relu(layer.fc1(x)))


@torch.no_grad()
def test_encoder_layers_are_the_equation() -> None:
    x = torch.randn(T, B, C)
    for layer in tiny(ARCH).eval().encoder.layers:
        y = layer.self_attn_layer_norm(x + layer.self_attn(x, x, x)[0])
        expected = layer.final_layer_norm(x + feed_forward(layer, y))
        torch.testing.assert_close(layer(x, None)[0], expected)
        x = expected


@torch.no_grad()
def test_decoder_layers_are_the_equation() -> None:
    x, source = torch.randn(T, B, C), torch.randn(S, B, C)
    mask = torch.full((T, T), float("-inf")).triu(1)
    for layer in tiny(ARCH).eval().decoder.layers:
        y = layer.self_attn_layer_norm(x + layer.self_attn(x, x, x, attn_mask=mask)[0])
        z = layer.encoder_attn_layer_norm(y + layer.encoder_attn(y, source, source)[0])
        expected = layer.final_layer_norm(x + feed_forward(layer, z))
        torch.testing.assert_close(layer(x, source, None, None, mask, None, False)[0], expected)
        x = expected


@pytest.mark.parametrize("train", [True, False])
def test_with_the_stream_in_the_last_sum_it_is_post_ln(train: bool) -> None:
    model = tiny(ARCH, dropout=0.2).train(train)
    post_ln = tiny("post_ln_transformer", dropout=0.2).train(train)
    post_ln.load_state_dict(model.state_dict(), strict=True)
    spanning, expected = logits(model, batch(), seed=5), logits(post_ln, batch(), seed=5)
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.ffn_residual = PlainResidual()
    assert torch.equal(logits(model, batch(), seed=5), expected)
    assert not torch.allclose(spanning, expected, atol=1e-2)


@pytest.mark.parametrize("norm", ["pre", "none", "sub"])
def test_other_places_of_layer_norm_are_refused(norm: str) -> None:
    with pytest.raises(UserError, match="--residual span leaves the stream out of the last sum of a layer"):
        tiny(ARCH, norm=norm)
