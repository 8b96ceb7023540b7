"""DeepNet: constants of the depths, what is drawn from them, and Post-LN where they are one."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.initialisation import StackWeights, linear_maps
from fairseq_plugins.core.method import Site, Stack
from fairseq_plugins.core.residual import ScaledStream
from fairseq_plugins.errors import UserError
from fairseq_plugins.methods.deepnet import alpha, beta, build, initialise
from tests.building import batch, logits, residuals, tiny
from tests.building import build as build_model
from tests.checkpoints.test_fold import assert_same, folded, tiny_model

ARCH = "deepnet_transformer"
D, F = 64, 96
SIZES: dict[str, Any] = {
    "encoder_embed_dim": D,
    "decoder_embed_dim": D,
    "encoder_ffn_embed_dim": F,
    "decoder_ffn_embed_dim": F,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_layers": 5,
    "decoder_layers": 4,
}
BETA = {"encoder": 0.87 * (5**4 * 4) ** (-1 / 16), "decoder": 48**-0.25}
SMALLER = ("v_proj", "out_proj", "fc1", "fc2")


def design(stack: Stack, encoder_layers: int, decoder_layers: int, rule: str = "paper") -> StackDesign:
    options = SimpleNamespace(deepnorm_init=rule)
    return StackDesign(stack, {}, encoder_layers, decoder_layers, D, F, 4, 0.0, options)


# The constants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "encoder", "decoder"),
    [
        ((6, 6), (1.418, 0.497), (2.060, 0.343)),
        ((12, 12), (1.761, 0.400), (2.449, 0.289)),
        ((18, 18), (1.999, 0.353), (2.711, 0.261)),
        ((60, 12), (2.633, 0.268), (2.449, 0.289)),
        ((100, 100), (3.416, 0.206), (4.162, 0.170)),
    ],
)
def test_constants_of_a_translation_model(
    layers: tuple[int, int], encoder: tuple[float, float], decoder: tuple[float, float]
) -> None:
    of_encoder, of_decoder = design(Stack.ENCODER, *layers), design(Stack.DECODER, *layers)
    assert (alpha(of_encoder, 2), beta(of_encoder, 2)) == pytest.approx(encoder, abs=5e-4)
    assert (alpha(of_decoder, 3), beta(of_decoder, 3)) == pytest.approx(decoder, abs=5e-4)


@pytest.mark.parametrize("layers", [1, 6, 18, 100])
def test_constants_of_a_stack_alone(layers: int) -> None:
    """Encoder-only and decoder-only: (2L)^(1/4) and (8L)^(-1/4)."""
    alone = [design(Stack.ENCODER, layers, 0), design(Stack.DECODER, 0, layers)]
    for one in alone:
        assert alpha(one, 2) == pytest.approx((2 * layers) ** 0.25, rel=1e-12)
        assert beta(one, 2) == pytest.approx((8 * layers) ** -0.25, rel=1e-12)


def test_a_language_model_of_eight_layers_has_two_and_an_eighth_s_root() -> None:
    """16^(1/4) = 2 and 64^(-1/4) = 8^(-1/2), without rounding."""
    one = design(Stack.DECODER, 0, 8)
    residuals_of_a_layer = build((Site.SELF, Site.FFN), 1, one)
    assert {type(residual) for residual in residuals_of_a_layer.values()} == {ScaledStream}
    assert [float(residual.stream_scale()) for residual in residuals_of_a_layer.values()] == [2.0, 2.0]
    assert beta(one, 2) == pytest.approx(8**-0.5, rel=1e-12)


def test_only_the_released_encoder_has_another_beta() -> None:
    """(N^4 M)^(1/16) / 1.15 is what the released code divides by; (12 M)^(1/4) and (8 M)^(1/4) agree with the text."""
    encoder, decoder = design(Stack.ENCODER, 18, 18), design(Stack.DECODER, 18, 18)
    assert 1 / beta(encoder, 2, "released") == pytest.approx((18**5) ** 0.0625 / 1.15, rel=1e-12)
    assert beta(encoder, 2, "released") / beta(encoder, 2) == pytest.approx(1.15 / 0.87, rel=1e-12)
    assert beta(decoder, 3, "released") == beta(decoder, 3)
    assert beta(replace(encoder, decoder_layers=0), 2, "released") == pytest.approx(144**-0.25, rel=1e-12)


def scale(stack: nn.Module) -> float:
    """The one scale of all its residual connections."""
    (value,) = {residual.scale for residual in residuals(stack).values()}
    return value


@pytest.mark.parametrize(
    ("values", "encoder", "decoder", "number"),
    [
        ({}, 0.81 * 162 ** (1 / 16), 6**0.25, 6 + 6),
        ({"attention": "matt"}, 0.81 * 162 ** (1 / 16), 4**0.25, 6 + 4),
        ({"no_cross_attention": True}, 0.81 * 162 ** (1 / 16), 4**0.25, 6 + 4),
        # A model from which layers are taken was trained with all of them.
        ({"encoder_layers_to_keep": "0,2"}, 0.81 * 162 ** (1 / 16), 6**0.25, 4 + 6),
    ],
    ids=str,
)
def test_alpha_of_a_model(values: dict[str, Any], encoder: float, decoder: float, number: int) -> None:
    """Three encoder and two decoder layers: N^4 M = 162."""
    model = tiny(ARCH, **values)
    assert scale(model.encoder) == pytest.approx(encoder, rel=1e-12)
    assert scale(model.decoder) == pytest.approx(decoder, rel=1e-12)
    assert len(residuals(model)) == number


# What is computed --------------------------------------------------------------------------------------------------


def test_every_residual_is_the_equation() -> None:
    model = tiny(ARCH, dropout=0.2).train()
    seen: dict[str, tuple[Tensor, ...]] = {}
    for name, residual in residuals(model).items():
        residual.register_forward_hook(lambda _, inputs, output, name=name: seen.update({name: (*inputs, output)}))
    logits(model, batch())
    assert seen.keys() == residuals(model).keys()
    for name, (branch, stream, _, output) in seen.items():
        factor = 0.81 * 162 ** (1 / 16) if name.startswith("encoder.") else 6**0.25
        torch.testing.assert_close(output, factor * stream + branch, rtol=1e-6, atol=1e-6)


def test_with_alpha_at_1_it_is_post_ln_to_the_bit() -> None:
    model, post_ln = tiny(ARCH, dropout=0.2), tiny("post_ln_transformer", dropout=0.2)
    post_ln.load_state_dict(model.state_dict(), strict=True)
    for train in (True, False):
        assert not torch.equal(*(logits(one.train(train), batch(), seed=5) for one in (model, post_ln)))
    for residual in residuals(model).values():
        residual.scale = 1.0
    for train in (True, False):
        assert torch.equal(*(logits(one.train(train), batch(), seed=5) for one in (model, post_ln)))


@pytest.mark.parametrize("norm", ["pre", "branch", "none"])
def test_it_needs_a_layernorm_after_the_sum(norm: str) -> None:
    with pytest.raises(UserError) as refused:
        tiny(ARCH, norm=norm)
    expected = f"--residual deepnorm scales the stream for the LayerNorm after it: it needs --norm post, not {norm}"
    assert expected in refused.value.problems
    hybrid = tiny(ARCH, norm=f"post,{norm}", residual="deepnorm,plain")
    assert scale(hybrid.encoder) == pytest.approx(0.81 * 162 ** (1 / 16), rel=1e-12)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"share_all_embeddings": True},
        {"encoder_learned_pos": True, "layernorm_embedding": True},
        {"residual": "deepnorm,plain"},
        {"encoder_layers_to_keep": "0,1"},
    ],
    ids=str,
)
def test_stock_computes_the_same_once_it_is_folded(tmp_path: Any, values: dict[str, Any]) -> None:
    model, values = tiny_model(ARCH, **values)
    stock = folded(tmp_path, ARCH, model, values)
    assert_same(model, stock)
    # The fold is not empty: the matrices of the queries have taken 1 / alpha.
    ratio = model.encoder.layers[0].self_attn.q_proj.weight / stock.encoder.layers[0].self_attn.q_proj.weight
    torch.testing.assert_close(ratio, torch.full_like(ratio, 0.81 * 162 ** (1 / 16)), rtol=1e-5, atol=0)


# What is drawn -----------------------------------------------------------------------------------------------------


def model_of(**values: Any) -> nn.Module:
    torch.manual_seed(11)
    return build_model(ARCH, **{**SIZES, **values})


def assert_deviation(values: Tensor, deviation: float, kurtosis: float, what: str) -> None:
    """Mean 0 and this deviation, each within four of its standard errors; ``kurtosis`` is that of the distribution."""
    size = values.numel()
    assert abs(float(values.mean())) <= 4 * deviation / math.sqrt(size), what
    error = math.sqrt((kurtosis - 1) / size)
    assert float(values.square().mean()) == pytest.approx(deviation**2, rel=4 * error), what


def kind_of(name: str) -> str:
    return name.rpartition(".")[2]


@pytest.mark.parametrize("base", ["xavier", "fairseq", "xavier_biased"])
def test_every_matrix_is_xavier_normal_with_its_gain(base: str) -> None:
    built = model_of(base_init=base)
    for stack, gain in BETA.items():
        layers = getattr(built, stack).layers
        for depth, layer in enumerate(layers, start=1):  # the same at every depth
            names = set()
            for name, linear in linear_maps(layer):
                names.add(name)
                fans = 2 * D if "_proj" in name else D + F
                factor = gain if kind_of(name) in SMALLER else 1.0
                what = f"{stack} layer {depth} {name}"
                assert_deviation(linear.weight.detach(), factor * math.sqrt(2 / fans), kurtosis=3.0, what=what)
                # A normal distribution, not a uniform one of this deviation, which ends at sqrt(3) of it.
                assert float(linear.weight.detach().abs().max()) > 2.5 * factor * math.sqrt(2 / fans), what
                assert not linear.bias.any(), what
            attentions = ("self_attn",) if stack == "encoder" else ("self_attn", "encoder_attn")
            maps = {f"{one}.{letter}_proj" for one in attentions for letter in ("q", "k", "v", "out")}
            assert names == maps | {"fc1", "fc2"}


def test_released_draws_as_linear_does_and_scales_the_biases_too() -> None:
    built = model_of(deepnorm_init="released")
    released = {"encoder": 1.15 * (5**4 * 4) ** (-1 / 16), "decoder": BETA["decoder"]}
    for stack, gain in released.items():
        for depth, layer in enumerate(getattr(built, stack).layers, start=1):
            for name, linear in linear_maps(layer):
                bound = (gain if kind_of(name) in SMALLER else 1.0) / math.sqrt(linear.in_features)
                what = f"{stack} layer {depth} {name}"
                assert_deviation(linear.weight.detach(), bound / math.sqrt(3), kurtosis=1.8, what=what)
                assert float(linear.weight.detach().abs().max()) <= bound * (1 + 1e-6), what
                assert 0.8 * bound < float(linear.bias.detach().abs().max()) <= bound * (1 + 1e-6), what


@pytest.mark.parametrize("rule", ["paper", "released"])
def test_the_base_does_not_matter(rule: str) -> None:
    """To the bit: what is drawn over the weights of three bases is the same for the same numbers."""
    drawn = []
    for base in ("xavier", "fairseq", "xavier_biased"):
        built = model_of(base_init=base)
        before = {name: value.clone() for name, value in built.decoder.layers.state_dict().items()}
        torch.manual_seed(3)
        with torch.no_grad():
            initialise(StackWeights(built.decoder.layers), design(Stack.DECODER, 5, 4, rule))
        after = built.decoder.layers.state_dict()
        assert not any(torch.equal(before[name], after[name]) for name in after if after[name].dim() == 2)
        drawn.append(after)
    for other in drawn[1:]:
        assert all(torch.equal(value, other[name]) for name, value in drawn[0].items())


def test_one_stack_alone_and_merged_attention() -> None:
    built = model_of(init="deepnorm,keep")
    stock = model_of(init="keep,keep")
    for name, weight in stock.decoder.layers.named_parameters():
        if weight.dim() == 2:  # the decoder's come from the base: Xavier uniform, which is bounded
            linear = built.decoder.layers.get_parameter(name)
            assert float(linear.detach().abs().max()) <= math.sqrt(6 / sum(linear.shape))
    merged = model_of(attention="matt")
    for layer in merged.decoder.layers:  # 8 sub-layers in 4 layers: beta = 32^(-1/4)
        for name in ("encoder_attn.v_proj", "encoder_attn.out_proj"):
            weight = layer.get_submodule(name).weight.detach()
            assert_deviation(weight, 32**-0.25 / math.sqrt(D), kurtosis=3.0, what=name)
        assert_deviation(layer.encoder_attn.q_proj.weight.detach(), 1 / math.sqrt(D), kurtosis=3.0, what="q")


def test_embeddings_and_layernorms_are_never_touched() -> None:
    built = model_of()
    torch.manual_seed(11)
    stock = build_model("transformer", **SIZES)
    assert torch.equal(built.encoder.embed_tokens.weight, stock.encoder.embed_tokens.weight)
    assert torch.equal(built.decoder.embed_tokens.weight, stock.decoder.embed_tokens.weight)
    before = built.decoder.output_projection.weight.clone()
    with torch.no_grad():
        weights = StackWeights(built.decoder.layers, built.decoder.embed_tokens, False, built.decoder.output_projection)
        initialise(weights, design(Stack.DECODER, 5, 4))
    assert torch.equal(built.decoder.output_projection.weight, before)
    assert torch.equal(built.decoder.embed_tokens.weight, stock.decoder.embed_tokens.weight)
    for norm in (module for module in built.modules() if isinstance(module, nn.LayerNorm)):
        assert bool((norm.weight == 1).all())
        assert not norm.bias.any()
