"""ReZero: the identity at first, exactly; one trained scalar a layer or a sub-layer."""

import itertools

import torch
from torch import Tensor, nn

from tests.models import residuals, tiny

T, S, B, C = 5, 7, 2, 16


def encoder_stack(model: nn.Module, x: Tensor) -> Tensor:
    for layer in model.encoder.layers:
        x = layer(x, None)[0]
    return x


def decoder_stack(model: nn.Module, x: Tensor, source: Tensor) -> Tensor:
    mask = torch.full((len(x), len(x)), float("-inf")).triu(1)
    for layer in model.decoder.layers:
        x = layer(x, source, None, None, mask, None, False)[0]
    return x


def test_both_stacks_are_the_identity_at_first() -> None:
    x, source = torch.randn(T, B, C), torch.randn(S, B, C)
    for per, train in itertools.product(("layer", "sublayer"), (True, False)):
        model = tiny("rezero_transformer", rezero_alpha_per=per, dropout=0.3).train(train)
        assert torch.equal(encoder_stack(model, x), x)
        assert torch.equal(decoder_stack(model, x, source), x)


def test_start_of_alpha() -> None:
    """Alpha one is the plain sum o = x + F(x) at first."""
    for method, said, values in (
        ("rezero", {}, {0.0}),
        ("rezero_alpha_one", {}, {1.0}),
        ("rezero", {"rezero_alpha": "0.25,1"}, {0.25, 1.0}),
    ):
        model = tiny(f"{method}_transformer", **said)
        assert {residual.alpha.item() for residual in residuals(model).values()} == values
        assert {residual.alpha.item() for residual in residuals(model.decoder).values()} == {max(values)}
