"""B2T: its layers against a straight-line computation with their own modules, and the paper's constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.core.residual import PlainResidual
from fairseq_plugins.methods.b2t import BottomToTop, WeightedBottomToTop
from tests.building import batch, build, logits, residuals, tiny

T, S, B, C = 5, 7, 3, 16
Last = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]
"""From the layer, its input, the last sub-layer's stream and branch to the layer's output."""


def with_norm(layer: nn.Module, x: Tensor, stream: Tensor, branch: Tensor) -> Tensor:
    """Equations 5 to 7."""
    return layer.final_layer_norm(x + stream + branch)


def skip_all(layer: nn.Module, x: Tensor, stream: Tensor, branch: Tensor) -> Tensor:
    """Footnote 2."""
    return x + layer.final_layer_norm(stream + branch)


def without_norm(alpha: float) -> Last:
    """Equations 9 to 11."""
    return lambda layer, x, stream, branch: alpha * x + C**-0.2 * (stream + branch)


def identity(x: Tensor) -> Tensor:
    return x


CASES: dict[str, tuple[dict[str, Any], Last, Last]] = {
    "norm": ({}, with_norm, with_norm),
    "skip all": ({"b2t_skip": "all"}, skip_all, skip_all),
    "skip all in the encoder": ({"b2t_skip": "all,residual"}, skip_all, with_norm),
    # min(N / 12, N^-0.15) with the depth of the own stack, 3 and 2.
    "no norm": ({"norm": "none"}, without_norm(3 / 12), without_norm(2 / 12)),
    "no norm in the decoder": ({"norm": "post,none"}, with_norm, without_norm(2 / 12)),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, Last, Last]:
    values, encoder, decoder = CASES[request.param]
    return tiny("b2t_transformer", **values).eval(), encoder, decoder


def norms(layer: nn.Module) -> list[Callable[[Tensor], Tensor]]:
    """LayerNorms of the sub-layers but the last."""
    named = [getattr(layer, name, None) for name in ("self_attn_layer_norm", "encoder_attn_layer_norm")]
    return [norm if norm is not None else identity for norm in named]


def feed_forward(layer: nn.Module, x: Tensor) -> Tensor:
    return layer.fc2(torch.relu(layer.fc1(x)))


@torch.no_grad()
def test_encoder_layer(case: tuple[nn.Module, Last, Last]) -> None:
    model, last, _ = case
    x = torch.randn(T, B, C)
    for layer in model.encoder.layers:
        middle = norms(layer)[0](x + layer.self_attn(x, x, x)[0])
        torch.testing.assert_close(layer(x, None)[0], last(layer, x, middle, feed_forward(layer, middle)))


@torch.no_grad()
def test_decoder_layer(case: tuple[nn.Module, Last, Last]) -> None:
    model, _, last = case
    x, source = torch.randn(T, B, C), torch.randn(S, B, C)
    mask = torch.full((T, T), float("-inf")).triu(1)
    for layer in model.decoder.layers:
        first, second = norms(layer)
        middle = first(x + layer.self_attn(x, x, x, attn_mask=mask)[0])
        upper = second(middle + layer.encoder_attn(middle, source, source)[0])
        expected = last(layer, x, upper, feed_forward(layer, upper))
        torch.testing.assert_close(layer(x, source, None, None, mask, None, False)[0], expected)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("skip", ["residual", "all"])
def test_without_its_term_it_is_post_ln(skip: str, train: bool) -> None:
    model = tiny("b2t_transformer", b2t_skip=skip, dropout=0.2).train(train)
    post_ln = tiny("post_ln_transformer", dropout=0.2).train(train)
    assert model.state_dict().keys() == post_ln.state_dict().keys()
    post_ln.load_state_dict(model.state_dict(), strict=True)
    with_term = logits(model, batch(), seed=5)
    for layer in (*model.encoder.layers, *model.decoder.layers):
        assert not isinstance(layer.ffn_residual, PlainResidual)
        layer.ffn_residual = PlainResidual()
    expected = logits(post_ln, batch(), seed=5)
    assert torch.equal(logits(model, batch(), seed=5), expected)
    assert not torch.allclose(with_term, expected, atol=1e-2)


def test_only_the_last_sub_layer_has_the_connection() -> None:
    model = tiny("b2t_transformer")
    kinds = {name: type(residual) for name, residual in residuals(model).items()}
    assert {name for name, kind in kinds.items() if kind is BottomToTop} == {
        f"{stack}.layers.{number}.ffn_residual"
        for stack, layers in (("encoder", 3), ("decoder", 2))
        for number in range(layers)
    }
    assert {kind for kind in kinds.values() if kind is not BottomToTop} == {PlainResidual}


@pytest.mark.parametrize(("layers", "alpha"), [(6, 0.5), (12, 0.6888), (18, 0.6482), (100, 0.5012)])
@pytest.mark.parametrize(("width", "beta"), [(512, 0.2872), (1024, 0.25)])
def test_constants_without_norm(layers: int, alpha: float, width: int, beta: float) -> None:
    """Of a stack's own depth and width: the other stack has others."""
    with torch.device("meta"):
        model = build(
            "b2t_transformer",
            norm="none",
            encoder_layers=layers,
            decoder_layers=1,
            encoder_embed_dim=width,
            decoder_embed_dim=512,
            encoder_ffn_embed_dim=8,
            decoder_ffn_embed_dim=8,
        )
    for layer in model.encoder.layers:
        assert isinstance(layer.ffn_residual, WeightedBottomToTop)
        assert (layer.ffn_residual.alpha, layer.ffn_residual.beta) == pytest.approx((alpha, beta), abs=5e-5)
    top = model.decoder.layers[0].ffn_residual
    assert (top.alpha, top.beta) == pytest.approx((1 / 12, 0.2872), abs=5e-5)


def test_without_norm_there_is_none_anywhere() -> None:
    model = tiny("b2t_transformer", norm="none")
    assert [name for name, module in model.named_modules() if isinstance(module, nn.LayerNorm)] == []
