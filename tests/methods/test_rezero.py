"""ReZero: the identity at first, exactly; one trained scalar a layer or a sub-layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.models import inputs as batch
from tests.models import logits, residuals, tiny

T, S, B, C = 5, 7, 2, 16
ARCHES = ("rezero_transformer", "rezero_post_ln_transformer")


def encoder_stack(model: nn.Module, x: Tensor) -> Tensor:
    for layer in model.encoder.layers:
        x = layer(x, None)[0]
    return x


def decoder_stack(model: nn.Module, x: Tensor, source: Tensor) -> Tensor:
    mask = torch.full((len(x), len(x)), float("-inf")).triu(1)
    for layer in model.decoder.layers:
        x = layer(x, source, None, None, mask, None, False)[0]
    return x


def alphas(model: nn.Module) -> list[nn.Parameter]:
    """Every alpha, shared ones once."""
    return list({id(residual.alpha): residual.alpha for residual in residuals(model).values()}.values())


@pytest.mark.parametrize("per", ["layer", "sublayer"])
@pytest.mark.parametrize("train", [True, False])
def test_both_stacks_are_the_identity_at_first(per: str, train: bool) -> None:
    model = tiny("rezero_transformer", rezero_alpha_per=per, dropout=0.3).train(train)
    x, source = torch.randn(T, B, C), torch.randn(S, B, C)
    assert torch.equal(encoder_stack(model, x), x)
    assert torch.equal(decoder_stack(model, x, source), x)


def test_the_jacobian_at_first_is_exactly_the_identity() -> None:
    """All singular values are 1 (section 4): of all outputs with respect to all inputs, in both stacks."""
    model = tiny("rezero_transformer").eval()
    x, source = torch.randn(3, 1, C), torch.randn(4, 1, C)
    for stack in (lambda y: encoder_stack(model, y), lambda y: decoder_stack(model, y, source)):
        jacobian = torch.autograd.functional.jacobian(stack, x).reshape(3 * C, 3 * C)
        assert torch.equal(jacobian, torch.eye(3 * C))
    blind = torch.autograd.functional.jacobian(lambda y: decoder_stack(model, x, y), source)
    assert not blind.any(), "the source has no influence yet"


@pytest.mark.parametrize("arch", ARCHES)
def test_only_alpha_gets_a_gradient_inside_the_layers_at_first(arch: str) -> None:
    model = tiny(arch).train()
    logits(model, batch()).square().sum().backward()
    for stack in (model.encoder, model.decoder):
        for name, parameter in stack.layers.named_parameters():
            if "layer_norm" in name:
                continue
            # The source is only looked at through a closed gate, so that the encoder's alphas start at zero too.
            open_gate = name.endswith("alpha") and stack is model.decoder
            assert bool(parameter.grad.any()) == open_gate, name


@pytest.mark.parametrize(("per", "encoder", "decoder"), [("layer", 1, 1), ("sublayer", 2, 3)])
@pytest.mark.parametrize("arch", ARCHES)
def test_sharing_of_alpha(arch: str, per: str, encoder: int, decoder: int) -> None:
    model = tiny(arch, rezero_alpha_per=per)
    for layers, each in ((model.encoder.layers, encoder), (model.decoder.layers, decoder)):
        for layer in layers:
            own = alphas(layer)
            assert len(own) == each
            assert all(alpha.shape == (1,) and not alpha.any() for alpha in own)
    assert len(alphas(model)) == 3 * encoder + 2 * decoder
    trained = {id(parameter) for parameter in model.parameters()}
    assert {id(alpha) for alpha in alphas(model)} <= trained
    for alpha in alphas(model):
        assert isinstance(alpha, nn.Parameter)


def test_a_shared_alpha_stays_shared_through_a_checkpoint() -> None:
    model, other = tiny("rezero_transformer"), tiny("rezero_transformer", seed=2)
    with torch.no_grad():
        for number, alpha in enumerate(alphas(model)):
            alpha.fill_(number + 1)
    other.load_state_dict(model.state_dict(), strict=True)
    assert [alpha.item() for alpha in alphas(other)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("values", "starts"),
    [({}, {0.0}), ({"rezero_alpha": "1"}, {1.0}), ({"rezero_alpha": "0.25,1"}, {0.25, 1.0})],
)
def test_start_of_alpha(values: dict[str, Any], starts: set[float]) -> None:
    model = tiny("rezero_transformer", **values)
    assert {alpha.item() for alpha in alphas(model)} == starts
    assert {alpha.item() for alpha in alphas(model.decoder)} == {max(starts)}
