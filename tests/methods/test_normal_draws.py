"""DeepNet's and Sub-LN's first weights: Xavier's normal rule with a gain, or as their released code draws."""

import math
from collections.abc import Iterator

from torch import nn

from fairseq_plugins.core.initialisation import linear_maps
from tests.methods.test_initialisation import D, assert_deviation, assert_uniform, model

SMALLER = ("v_proj", "out_proj", "fc1", "fc2")
# The models of test_initialisation have five encoder and four decoder layers.
BETA = {"encoder": 0.87 * (5**4 * 4) ** (-1 / 16), "decoder": 48**-0.25}
GAMMA = {"encoder": math.sqrt(math.log(12) * math.log(10) / 3), "decoder": math.sqrt(math.log(12))}


def gain_of(name: str, gain: float, cross: bool) -> float:
    """The gain of a map: 1 for queries and keys and, in Sub-LN, in the cross-attention."""
    return gain if name.rpartition(".")[2] in SMALLER and (cross or "encoder_attn" not in name) else 1.0


Gains = dict[str, float]
PAPER: list[tuple[str, str, Gains, bool]] = [
    *(("deepnet", base, BETA, True) for base in ("xavier", "fairseq", "xavier_biased")),
    ("sub_ln", "fairseq", GAMMA, False),
]
RELEASED: list[tuple[str, str, Gains, bool]] = [
    ("deepnet", "deepnorm_init", {"encoder": 1.15 * (5**4 * 4) ** (-1 / 16), "decoder": BETA["decoder"]}, True),
    ("sub_ln", "sub_ln_init", GAMMA, False),
]


def maps_of(built: nn.Module, gains: Gains, cross: bool) -> Iterator[tuple[str, nn.Linear, float]]:
    """Every map of a model, its place, and its gain, which is the same at every depth."""
    for stack, gain in gains.items():
        for depth, layer in enumerate(getattr(built, stack).layers, start=1):
            for name, linear in linear_maps(layer):
                yield f"{stack} layer {depth} {name}", linear, gain_of(name, gain, cross)


def test_every_matrix_is_xavier_normal_with_its_gain() -> None:
    for method, base, gains, cross in PAPER:
        names = []
        for name, linear, gain in maps_of(model(f"{method}_transformer", base_init=base), gains, cross):
            weight = linear.weight.detach()
            deviation, what = gain * math.sqrt(2 / sum(weight.shape)), f"{method} {base} {name}"
            assert_deviation(weight, deviation, kurtosis=3.0, what=what)
            # A normal distribution, not a uniform one of this deviation, which ends at sqrt(3) of it.
            assert float(weight.abs().max()) > 2.5 * deviation, what
            assert not linear.bias.any(), what
            names.append(name)
        assert len(names) == 5 * (4 + 2) + 4 * (8 + 2)


def test_the_released_rule_draws_as_linear_does_and_scales_the_biases_too() -> None:
    for method, option, gains, cross in RELEASED:
        for name, linear, gain in maps_of(model(f"{method}_transformer", **{option: "released"}), gains, cross):
            bound, what = gain / math.sqrt(linear.in_features), f"{method} {name}"
            assert_uniform(linear.weight.detach(), bound, what)
            assert 0.8 * bound < float(linear.bias.detach().abs().max()) <= bound * (1 + 1e-6), what


def test_deepnet_of_one_stack_alone_and_merged_attention() -> None:
    built = model("deepnet_transformer", init="deepnorm,keep")
    for name, weight in built.decoder.layers.named_parameters():
        if weight.dim() == 2:  # the decoder's come from the base: Xavier uniform, which is bounded
            assert float(weight.detach().abs().max()) <= math.sqrt(6 / sum(weight.shape)), name
    for layer in model("deepnet_transformer", attention="matt").decoder.layers:
        cross: nn.Module = layer.encoder_attn
        for name, gain in (("v_proj", 32**-0.25), ("out_proj", 32**-0.25), ("q_proj", 1.0)):  # 8 sub-layers
            weight = cross.get_submodule(name).weight.detach()
            assert_deviation(weight, gain / math.sqrt(D), kurtosis=3.0, what=name)
