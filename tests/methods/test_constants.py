"""The constants that papers print or give in closed form, and the sub-layers that a model counts for them."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Stack
from fairseq_plugins.core.residual import PlainResidual
from fairseq_plugins.methods import deepnet, pcformer, sub_ln
from fairseq_plugins.methods.dlcl import initial_weights
from fairseq_plugins.methods.mix_ln import post_layers
from fairseq_plugins.methods.ode import RungeKutta
from tests.models import full, residuals, tiny
from tests.toy import train_toy


def design(stack: Stack, encoder_layers: int, decoder_layers: int) -> StackDesign:
    """Depths alone; the other sizes have no influence on constants."""
    return StackDesign(stack, {}, encoder_layers, decoder_layers, 64, 96, 4, 0.0, 0.0, SimpleNamespace())


def test_constants_of_a_stack_alone() -> None:
    """(2L)^(1/4) and (8L)^(-1/4) of DeepNet, also as released, and sqrt(ln 2L) of Sub-LN."""
    for layers in (1, 8, 100):
        for one in (design(Stack.ENCODER, layers, 0), design(Stack.DECODER, 0, layers)):
            assert deepnet.alpha(one, 2) == pytest.approx((2 * layers) ** 0.25, rel=1e-12)
            assert deepnet.beta(one, 2) == deepnet.beta(one, 2, "released") == pytest.approx((8 * layers) ** -0.25)
            assert sub_ln.gamma(one, 2) == pytest.approx(math.sqrt(math.log(2 * layers)), rel=1e-12)


def test_what_solvers_start_from() -> None:
    """Averages of all states, as a DLCL; a moving average by halves; both evaluations in full."""
    solver = pcformer.PredictorCorrector(layers=2, width=4, order=2, whole=False)
    for weights in (solver.before, solver.after):
        assert torch.equal(weights, initial_weights(3, 3, "average"))
    assert (solver.alpha.item(), RungeKutta(1, 2, "trained", whole=False).gamma.tolist()) == (0.5, [1.0, 1.0])


def test_mix_ln_rounds_the_number_of_post_ln_layers_down() -> None:
    table = [(12, 0.25, 3), (24, 0.25, 6), (6, 0.25, 1), (18, 0.25, 4), (3, 0.25, 0), (100, 0.29, 29), (7, 0.0, 0)]
    assert [post_layers(layers, portion) for layers, portion, _ in table] == [number for _, _, number in table]


SIX = {"encoder_layers": 6, "decoder_layers": 6}
EIGHT = {"encoder_layers": 8, "decoder_layers": 12}
KEPT = {"encoder_layers_to_keep": "0,2"}
WITHOUT_CROSS = {"no_cross_attention": True}
OF_ENCODER = 0.81 * 162 ** (1 / 16)
"""Three encoder and two decoder layers: N^4 M = 162."""
STREAMS: list[tuple[str, dict[str, Any], tuple[float, ...]]] = [
    ("deepnet_transformer", {}, (OF_ENCODER, 6**0.25)),
    ("deepnet_transformer", {"attention": "matt"}, (OF_ENCODER, 4**0.25)),
    ("deepnet_transformer", WITHOUT_CROSS, (OF_ENCODER, 4**0.25)),
    # A model from which layers are taken was trained with all of them.
    ("deepnet_transformer", KEPT, (OF_ENCODER, 6**0.25)),
    *(
        ("admin_torch_transformer", {**values, "admin_torch_omega": kind}, omegas)
        for kind in ("fixed", "trained")
        for values, omegas in (
            (SIX, (2.0170, 2.3351)),
            ({"encoder_layers": 18, "decoder_layers": 18}, (3.0408, 3.5672)),
            ({"encoder_layers": 100, "decoder_layers": 100}, (6.0746, 7.1931)),
            # Two sub-layers in each layer of the decoder.
            ({"encoder_layers": 9, "decoder_layers": 18, "attention": "matt"}, (2.3351, 3.0408)),
            ({**SIX, **WITHOUT_CROSS}, (2.0170, 2.0170)),
            ({**EIGHT, "admin_torch_change": "constant"}, (4.0, 6.0)),
            ({**EIGHT, "admin_torch_change": "linear,constant"}, (1.0, 6.0)),
            ({**SIX, **KEPT}, (2.0170, 2.3351)),
        )
    ),
    ("keel_transformer", {"decoder_layers": 5}, (6.0, 15.0)),
    ("keel_transformer", {"attention": "matt"}, (6.0, 4.0)),
    ("keel_transformer_lm", {}, (6.0,)),
    ("keel_s2t_transformer", {}, (6.0, 6.0)),
]
"""Factor of the stream in each stack, which counts the sub-layers that there are."""


def test_kept_layers_have_the_depths_of_their_training() -> None:
    model = tiny("layernorm_scaling_transformer", encoder_layers=4, encoder_layers_to_keep="3,1")
    assert [layer.depth for layer in model.encoder.layers] == [2, 4]


def test_the_factor_of_the_stream_in_a_model() -> None:
    wrong = []
    for arch, values, expected in STREAMS:
        model: Any = tiny(arch, **values)
        for (name, stack), factor in zip(model.stacks(), expected, strict=True):
            joins = [join for join in residuals(stack).values() if not isinstance(join, PlainResidual)]
            factors = {number for join in joins for number in join.stream_scale().tolist()}
            wrong += [] if len(factors) == 1 and abs(factors.pop() - factor) < 5e-5 else [f"{arch} {values} {name}"]
    assert wrong == []


def test_start_of_alpha() -> None:
    """ReZero is the identity at first; alpha one is the plain sum o = x + F(x)."""
    for method, said, values in (
        ("rezero", {}, {0.0}),
        ("rezero_alpha_one", {}, {1.0}),
        ("rezero", {"rezero_alpha": "0.25,1"}, {0.25, 1.0}),
    ):
        model: Any = tiny(f"{method}_transformer", **said)
        assert {residual.alpha.item() for residual in residuals(model).values()} == values
        assert {residual.alpha.item() for residual in residuals(model.decoder).values()} == {max(values)}


def test_keel_s_first_sub_layer_is_plain_where_it_is_merged_attention() -> None:
    bottom, upper = tiny("keel_transformer", attention="matt").decoder.layers
    assert not hasattr(bottom, "encoder_attn_after_norm")
    assert hasattr(upper, "encoder_attn_after_norm")


@pytest.mark.parametrize(("layers", "alpha"), [(6, 0.5), (12, 0.6888), (18, 0.6482), (100, 0.5012)])
@pytest.mark.parametrize(("width", "beta"), [(512, 0.2872), (1024, 0.25)])
def test_b2t_without_norm(layers: int, alpha: float, width: int, beta: float) -> None:
    """Both follow the depth and the width of their own stack."""
    sizes = {"encoder_layers": layers, "decoder_layers": 1, "encoder_embed_dim": width, "decoder_embed_dim": 512}
    with torch.device("meta"):
        model: Any = full("b2t_without_ln_transformer", **sizes, encoder_ffn_embed_dim=8, decoder_ffn_embed_dim=8)
    for layer in model.encoder.layers:
        assert (layer.ffn_residual.alpha, layer.ffn_residual.beta) == pytest.approx((alpha, beta), abs=5e-5)
    top = model.decoder.layers[0].ffn_residual
    assert (top.alpha, top.beta) == pytest.approx((1 / 12, 0.2872), abs=5e-5)


def test_branch_norm_s_factor_grows_to_one_with_the_updates() -> None:
    model: Any = tiny("branch_norm_transformer")
    for made, factor in ((0, 1 / 4000), (1, 2 / 4000), (999, 0.25), (3998, 3999 / 4000), (3999, 1.0), (10**6, 1.0)):
        model.set_num_updates(made)
        assert [float(one.grown) for one in residuals(model).values()] == pytest.approx([factor] * 12, rel=1e-6)
    # A fine-tuning counts from 0.
    model.set_num_updates(0)
    assert {float(one.grown) for one in residuals(model).values()} == {1.0}


def test_a_checkpoint_has_branch_norm_s_factor_of_its_last_update(toy_data: Path, tmp_path: Path) -> None:
    for updates, factor in ((2, 0.5), (3, 0.75), (6, 1.0)):  # the second and third continue
        flags = ("--max-update", str(updates), "--branch-norm-updates", "4", "--no-epoch-checkpoints")
        path = train_toy(toy_data, tmp_path, *flags, arch="branch_norm_transformer")
        state = torch.load(path, weights_only=True)["model"]
        assert {float(value) for name, value in state.items() if name.endswith(".grown")} == {factor}


def test_completep_scales_the_layers_alone() -> None:
    """At alpha = 1 only epsilon, at 1/2 the rate too; at the depth of the base nothing."""
    for alpha, base, own in (("1", "1", {"eps": 1 / 3}), ("0.5", "1", {"lr": 3**-0.5, "eps": 3**-0.5}), ("1", "3", {})):
        model = tiny("completep_transformer", depth_mup_alpha=alpha, depth_mup_base=base)
        for name, parameter in model.encoder.named_parameters():
            factors = getattr(parameter, "optim_overrides", {}).get("factors", {})
            assert factors == pytest.approx(own if name.startswith("layers.") else {}), name
