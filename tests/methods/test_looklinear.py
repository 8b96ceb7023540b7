"""LookLinear: after the mirrored initialisation a feed-forward sub-layer is a linear map, exactly."""

import torch
from fairseq import utils

from fairseq_plugins.methods.looklinear import LINEAR_WHEN_MIRRORED
from tests.methods.test_initialisation import DEPTH, model
from tests.models import tiny

SIZE = 64
"""Width of the models in double precision; the feed-forward is four times as wide."""


@torch.no_grad()
def test_every_feed_forward_is_linear() -> None:
    """FFN(x) = B A x, to rounding in float64."""
    x = torch.randn(20, SIZE, dtype=torch.double)
    dims = {f"{stack}_{name}_dim": size for stack in DEPTH for name, size in (("embed", SIZE), ("ffn_embed", 4 * SIZE))}
    for base in ("xavier", "xavier_biased", "fairseq"):
        built = tiny("looklinear_transformer", base_init=base, **dims).double().eval()
        for layer in (*built.encoder.layers, *built.decoder.layers):
            output = layer.fc2(layer.activation_fn(layer.fc1(x)))
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


def test_halves_are_mirrored_and_the_rest_is_what_post_ln_draws() -> None:
    built, plain = model("looklinear_transformer"), model("post_ln_transformer", base_init="xavier").state_dict()
    mirrored = {"fc1.weight": 0, "fc2.weight": 1}
    for name, weight in built.state_dict().items():
        if (dim := mirrored.get(name[-10:])) is None:
            assert torch.equal(weight, plain[name]), name
        else:
            first, second = weight.chunk(2, dim)
            assert torch.equal(first, plain[name].chunk(2, dim)[0]), name
            assert torch.equal(second, -first), name
