"""The first weights: the distribution of every matrix of a layer, at the bottom and at the top of each stack.

Expectations are written out here from the papers' formulas; width 64, feed-forward width 96, so that no two fans agree.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.models import full as build

Values = dict[str, float]
NONE: Values = {}
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
DEPTH = {"encoder": 5, "decoder": 4}
XAVIER = math.sqrt(6 / (D + D))
XAVIER_FFN = math.sqrt(6 / (D + F))
FUSED = math.sqrt(6 / (D + 3 * D))
"""Bound of q, k and v drawn as the one matrix (3 D, D): that of a (D, D) matrix by sqrt(2)."""
SELF = {"self_attn.q_proj": FUSED, "self_attn.k_proj": FUSED, "self_attn.v_proj": FUSED, "self_attn.out_proj": XAVIER}


def cross(bound: float) -> Values:
    return {**{f"encoder_attn.{one}_proj": bound for one in "qkv"}, "encoder_attn.out_proj": XAVIER}


def both(feed_forward: Values, cross_bound: float = FUSED) -> dict[str, Values]:
    return {"encoder": {**SELF, **feed_forward}, "decoder": {**SELF, **cross(cross_bound), **feed_forward}}


PAPERS_FFN = {"fc1": XAVIER_FFN, "fc2": XAVIER_FFN}
STOCK_FFN = {"fc1": 1 / math.sqrt(D), "fc2": 1 / math.sqrt(F)}
STOCK_BIASES = {**STOCK_FFN, **{f"{a}_attn.{m}_proj": 1 / math.sqrt(D) for a in ("self", "encoder") for m in "qkv"}}
PAPERS, STOCK = both(PAPERS_FFN), both(STOCK_FFN)
DEPTH_SCALED = both(PAPERS_FFN, cross_bound=XAVIER)
WITHOUT_SELF = {"encoder": PAPERS["encoder"], "decoder": {**cross(XAVIER), **PAPERS_FFN}}


def model(arch: str, **values: Any) -> nn.Module:
    torch.manual_seed(11)
    return build(arch, **{**SIZES, **values})


def assert_deviation(values: Tensor, deviation: float, kurtosis: float, what: str) -> None:
    """Mean 0 and this deviation, each within four of its standard errors; ``kurtosis`` is that of the distribution."""
    size = values.numel()
    assert abs(float(values.mean())) <= 4 * deviation / math.sqrt(size), what
    error = math.sqrt((kurtosis - 1) / size)
    assert float(values.square().mean()) == pytest.approx(deviation**2, rel=4 * error), what


def assert_uniform(values: Tensor, bound: float, what: str) -> None:
    """``values`` look drawn from U(-bound, bound): none beyond, some near, mean and deviation as they should be."""
    largest, size = float(values.abs().max()), values.numel()
    assert largest <= bound * (1 + 1e-6), f"{what}: {largest} beyond {bound}"
    assert largest >= bound * (1 - 12 / size), f"{what}: {largest} is too far within {bound}"
    assert_deviation(values, bound / math.sqrt(3), kurtosis=1.8, what=what)


def assert_layer(layer: nn.Module, weights: Values, biases: Values, what: str) -> None:
    linears = {name: module for name, module in layer.named_modules() if isinstance(module, nn.Linear)}
    assert linears.keys() == weights.keys()
    for name, linear in linears.items():
        assert_uniform(linear.weight.detach(), weights[name], f"{what}.{name}")
        if name in biases:
            assert 0.8 * biases[name] < float(linear.bias.detach().abs().max()) <= biases[name], f"{what}.{name}.bias"
        else:
            assert not linear.bias.any(), f"{what}.{name}.bias"
    for norm in (module for module in layer.modules() if isinstance(module, nn.LayerNorm)):
        assert bool((norm.weight == 1).all())
        assert not norm.bias.any()


def assert_model(
    built: nn.Module, weights: dict[str, Values], biases: Values = NONE, exponent: Values = NONE, factor: Values = NONE
) -> None:
    """Check the lowest and the highest layer; ``factor * depth ** exponent`` scales the bounds of a stack."""
    for stack, bounds in weights.items():
        layers = getattr(built, stack).layers
        assert len(layers) == DEPTH[stack]
        for depth in (1, DEPTH[stack]):
            scale = factor.get(stack, 1.0) * depth ** exponent.get(stack, 0.0)
            scaled = {name: bound * scale for name, bound in bounds.items()}
            assert_layer(layers[depth - 1], scaled, biases, f"{stack} layer {depth}")


GATE = {"self_attn.gate": math.sqrt(6 / (2 * D + 2 * D))}
NETWORK = {"self_attn.ffn.fc1": XAVIER_FFN, "self_attn.ffn.fc2": XAVIER_FFN}
BESIDE = {f"encoder_attn.{name}": bound for name, bound in {**SELF, **GATE}.items()}
SELF_BESIDE = {name: bound for name, bound in BESIDE.items() if "gate" not in name}
GATE_BESIDE = {name: bound for name, bound in BESIDE.items() if "gate" in name}


def stacks(encoder: Any, decoder: Any) -> dict[str, Any]:
    return {"encoder": encoder, "decoder": decoder}


def of_decoder(*parts: Values) -> dict[str, Values]:
    """The encoder of the papers below a decoder of these maps."""
    return stacks(PAPERS["encoder"], {name: bound for part in parts for name, bound in part.items()})


ROOT, FOURTH_ROOT = stacks(-0.5, -0.5), stacks(-0.25, -0.25)
BY_ROOT, BY_FOURTH_ROOT = {"exponent": ROOT}, {"exponent": FOURTH_ROOT}
WITH_BIASES = {"biases": STOCK_BIASES}
RELEASED, APART, STOCK_BASE = {"ds_init_rule": "released"}, {"base_init": "xavier_apart"}, {"base_init": "fairseq"}
ALPHA, ONE_STOCK = {"ds_init_alpha": "0.36"}, {"base_init": "xavier,fairseq"}
ONE_STACK = {"init": "keep,ds_init", "ds_init_rule": "paper,released"}
B2T = {"layers": stacks(5**-0.5, 4**-0.5), "0.1": stacks(0.1, 0.1), "0.1,none": stacks(0.1, 1)}
DISTRIBUTIONS: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    # The base: today's stock fairseq, or that of the papers; a choice of its own for each stack.
    *((arch, {}, STOCK, WITH_BIASES) for arch in ("post_ln", "pre_ln", "b2t", "rezero")),
    *((arch, {}, PAPERS, {}) for arch in ("admin", "rezero_post_ln")),
    ("post_ln", ONE_STOCK, {"encoder": PAPERS["encoder"]}, {}),
    ("post_ln", ONE_STOCK, {"decoder": STOCK["decoder"]}, WITH_BIASES),
    # Xavier's variance with gain 1, 2 / (d + d), instead of that of one fused matrix, 2 / (d + 3 d); not twice.
    *((arch, APART, DEPTH_SCALED, {}) for arch in ("post_ln", "pre_ln", "rezero", "admin")),
    ("ds_init", {**APART, **RELEASED}, DEPTH_SCALED, BY_FOURTH_ROOT),
    ("dsinit_matt", {**APART, "init": "keep"}, WITHOUT_SELF, {}),
    # DS-Init shrinks with the root of the depth, as released with the fourth root; alpha with its own root.
    ("ds_init", {}, DEPTH_SCALED, BY_ROOT),
    ("ds_init", RELEASED, DEPTH_SCALED, BY_FOURTH_ROOT),
    ("ds_init", ALPHA, DEPTH_SCALED, {**BY_ROOT, "factor": stacks(0.36, 0.36)}),
    ("ds_init", {**ALPHA, **RELEASED}, DEPTH_SCALED, {**BY_FOURTH_ROOT, "factor": stacks(0.6, 0.6)}),
    ("ds_init", ONE_STACK, {"encoder": PAPERS["encoder"]}, {}),
    ("ds_init", ONE_STACK, {"decoder": DEPTH_SCALED["decoder"]}, BY_FOURTH_ROOT),
    ("ds_init", STOCK_BASE, both(STOCK_FFN, cross_bound=XAVIER), {**WITH_BIASES, **BY_ROOT}),
    # The cross-attention is drawn as three matrices, a self-attention in its sub-layer as one.
    ("dsinit_matt", {}, WITHOUT_SELF, BY_ROOT),
    ("dsinit_matt_self", {}, of_decoder(cross(XAVIER), SELF_BESIDE, PAPERS_FFN), BY_ROOT),
    ("dsinit_matt_aan", RELEASED, of_decoder(cross(XAVIER), GATE_BESIDE, PAPERS_FFN), BY_FOURTH_ROOT),
    # The gate of average attention is Xavier's without bias under every base.
    ("aan", {"aan_ffn": "yes"}, of_decoder(GATE, NETWORK, cross(FUSED), PAPERS_FFN), {}),
    ("aan", STOCK_BASE, stacks(STOCK["encoder"], {**GATE, **cross(FUSED), **STOCK_FFN}), WITH_BIASES),
    ("aan", {"init": "ds_init"}, of_decoder(GATE, cross(XAVIER), PAPERS_FFN), BY_ROOT),
    # B2T scales every matrix of a stack alike.
    *(("b2t", {"b2t_init_scale": scale}, STOCK, {**WITH_BIASES, "factor": factor}) for scale, factor in B2T.items()),
]


def test_distribution_of_every_matrix() -> None:
    for method, values, weights, more in DISTRIBUTIONS:
        assert_model(model(f"{method}_transformer", **values), weights, **more)


@pytest.mark.parametrize("arch", ["b2t", "pre_ln", "b2t_without_ln"])
@pytest.mark.parametrize(("scale", "factors"), [("0.1", (0.1, 0.1)), ("layers", (5**-0.5, 4**-0.5))])
def test_b2t_scales_every_parameter_but_the_embeddings(arch: str, scale: str, factors: tuple[float, float]) -> None:
    """Biases, LayerNorms and the LayerNorm on top of Pre-LN, too; drawn by the same seed, so number by number."""
    plain = dict(model(f"{arch}_transformer", init="b2t").named_parameters())
    scaled = model(f"{arch}_transformer", init="b2t", b2t_init_scale=scale, b2t_init_scope="parameters")
    for name, parameter in scaled.named_parameters():
        of_a_table = "embed" in name or "output_projection" in name
        factor = 1.0 if of_a_table else factors[name.startswith("decoder")]
        torch.testing.assert_close(parameter.detach(), plain[name].detach() * factor, rtol=1e-6, atol=0)


def test_embeddings_are_never_touched() -> None:
    stock = model("transformer")
    for arch in ("post_ln", "admin", "ds_init", "dsinit_matt", "b2t", "rezero", "deepnet"):
        built = model(f"{arch}_transformer", **({"b2t_init_scale": "0.1"} if arch == "b2t" else {}))
        assert torch.equal(built.encoder.embed_tokens.weight, stock.encoder.embed_tokens.weight), arch
        # Drawn after the encoder's layers are built and before any is drawn anew.
        assert torch.equal(built.decoder.embed_tokens.weight, stock.decoder.embed_tokens.weight), arch
        for table in (built.encoder.embed_tokens, built.decoder.embed_tokens, built.decoder.output_projection):
            assert float(table.weight[4:].detach().std()) == pytest.approx(D**-0.5, rel=0.06)
        assert not built.encoder.embed_tokens.weight[1].any(), "the row of the pad"
