"""LookLinear: after the mirrored initialisation a feed-forward sub-layer is a linear map, exactly."""

from __future__ import annotations

import torch
from fairseq import utils
from torch import Tensor, nn

from fairseq_plugins.methods.looklinear import LINEAR_WHEN_MIRRORED
from tests.methods.test_initialisation import DEPTH, PAPERS, SIZES, assert_model, model
from tests.models import tiny

SIZE = 64
"""Width of the models in double precision; the feed-forward is four times as wide."""


def feed_forward(layer: nn.Module, x: Tensor) -> Tensor:
    return layer.fc2(layer.activation_dropout_module(layer.activation_fn(layer.fc1(x))))


def layers(built: nn.Module) -> list[nn.Module]:
    return [*built.encoder.layers, *built.decoder.layers]


@torch.no_grad()
def test_every_feed_forward_is_linear() -> None:
    """FFN(x) = B A x, to rounding in float64."""
    x = torch.randn(20, SIZE, dtype=torch.double)
    sizes = {
        f"{stack}_{name}_dim": size for stack in DEPTH for name, size in (("embed", SIZE), ("ffn_embed", 4 * SIZE))
    }
    for base in ("xavier", "xavier_biased", "fairseq"):
        for layer in layers(tiny("looklinear_transformer", base_init=base, **sizes).double().eval()):
            output = feed_forward(layer, x)
            assert float(output.std()) > 0.1
            product = layer.fc2.weight[:, : 2 * SIZE] @ layer.fc1.weight[: 2 * SIZE]
            torch.testing.assert_close(output, x @ product.t(), rtol=0, atol=1e-12)


@torch.no_grad()
def test_activations_that_it_makes_linear() -> None:
    """phi(u) - phi(-u) is u, or 2 u for the identity; fairseq computes gelu in single precision."""
    u = torch.linspace(-8, 8, 1001, dtype=torch.double)
    for activation in LINEAR_WHEN_MIRRORED:
        phi = utils.get_activation_fn(activation)
        slope = 2 if activation == "linear" else 1
        tolerance = 1e-6 if activation.startswith("gelu") else 1e-14
        torch.testing.assert_close(phi(u).double() - phi(-u).double(), slope * u, rtol=0, atol=tolerance)


def test_every_activation_of_fairseq_is_judged() -> None:
    assert {*utils.get_available_activation_fns()} == {*LINEAR_WHEN_MIRRORED, "tanh"}


def test_halves_are_mirrored_and_the_rest_is_xavier() -> None:
    """Exactly; both halves, and every map of the attentions, keep Xavier's bound and deviation."""
    built = model("looklinear_transformer", encoder_layers=5, decoder_layers=4)
    assert_model(built, PAPERS)
    half = SIZES["encoder_ffn_embed_dim"] // 2
    for layer in layers(built):
        assert torch.equal(layer.fc1.weight[half:], -layer.fc1.weight[:half])
        assert torch.equal(layer.fc2.weight[:, half:], -layer.fc2.weight[:, :half])
        assert not layer.fc1.bias.any()
        assert not layer.fc2.bias.any()


def test_what_is_not_mirrored_is_what_post_ln_draws() -> None:
    built, plain = model("looklinear_transformer"), model("post_ln_transformer", base_init="xavier").state_dict()
    mirrored = {"fc1.weight": 0, "fc2.weight": 1}
    for name, weight in built.state_dict().items():
        dim = mirrored.get(name[-10:])
        mine, expected = (value if dim is None else value.chunk(2, dim)[0] for value in (weight, plain[name]))
        assert torch.equal(mine, expected), name
