"""Admin-Torch: omega from the number of sub-layers; fixed or trained; foldable."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.errors import UserError
from fairseq_plugins.methods.admin_torch import omega_of
from tests.building import batch, count, logits, residuals, tiny
from tests.checkpoints.test_fold import assert_same, folded, random_in, tiny_model

ARCH = "admin_torch_transformer"


@pytest.mark.parametrize(
    ("sub_layers", "omega"),
    [(12, 2.0170), (18, 2.3351), (36, 3.0408), (54, 3.5672), (200, 6.0746), (300, 7.1931)],
)
def test_omega_of_the_default(sub_layers: int, omega: float) -> None:
    assert omega_of(sub_layers, "logn") == pytest.approx(omega, abs=5e-5)


@pytest.mark.parametrize(("sub_layers", "root"), [(4, 2.0), (36, 6.0), (100, 10.0)])
def test_omega_of_the_other_targets(sub_layers: int, root: float) -> None:
    assert omega_of(sub_layers, "constant") == root
    assert omega_of(sub_layers, "linear") == 1.0


def omega_in(stack: nn.Module) -> float:
    """The one number that stands everywhere in the omegas of its residual connections."""
    (value,) = {number for residual in residuals(stack).values() for number in residual.omega.tolist()}
    return value


@pytest.mark.parametrize(
    ("values", "encoder", "decoder"),
    [
        ({"encoder_layers": 6, "decoder_layers": 6}, 2.0170, 2.3351),
        ({"encoder_layers": 18, "decoder_layers": 18}, 3.0408, 3.5672),
        ({"encoder_layers": 100, "decoder_layers": 100}, 6.0746, 7.1931),
        # Two sub-layers in each layer of the decoder.
        ({"encoder_layers": 9, "decoder_layers": 18, "attention": "matt"}, 2.3351, 3.0408),
        ({"encoder_layers": 6, "decoder_layers": 6, "no_cross_attention": True}, 2.0170, 2.0170),
        ({"encoder_layers": 8, "decoder_layers": 12, "admin_torch_change": "constant"}, 4.0, 6.0),
        ({"encoder_layers": 8, "decoder_layers": 12, "admin_torch_change": "linear,constant"}, 1.0, 6.0),
        # A model from which layers are taken was trained with all of them.
        ({"encoder_layers": 6, "decoder_layers": 6, "encoder_layers_to_keep": "0,2"}, 2.0170, 2.3351),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["fixed", "trained"])
def test_omega_counts_the_sub_layers_of_its_stack(
    values: dict[str, Any], encoder: float, decoder: float, kind: str
) -> None:
    model = tiny(ARCH, admin_torch_omega=kind, **values)
    assert omega_in(model.encoder) == pytest.approx(encoder, abs=5e-5)
    assert omega_in(model.decoder) == pytest.approx(decoder, abs=5e-5)


def test_a_fixed_omega_is_a_buffer_and_a_trained_one_a_parameter_of_its_own() -> None:
    plain, fixed, trained = tiny("post_ln_transformer"), tiny(ARCH), tiny(ARCH, admin_torch_omega="trained")
    number = 3 * 2 + 2 * 3  # residual connections of three encoder and two decoder layers
    for model, shape in ((fixed, (1,)), (trained, (16,))):
        added = {name: value for name, value in model.state_dict().items() if name not in plain.state_dict()}
        assert len(added) == number
        assert all(name.endswith("_residual.omega") and tuple(value.shape) == shape for name, value in added.items())
    assert [name for name, _ in fixed.named_parameters()] == [name for name, _ in plain.named_parameters()]
    parameters = [p for name, p in trained.named_parameters() if name.endswith("omega")]
    assert len({id(parameter) for parameter in parameters}) == number
    logits(trained, batch()).square().mean().backward()
    assert all(bool((parameter.grad != 0).any()) for parameter in parameters)


@pytest.mark.parametrize(("depth", "vectors"), [("", 30), ("_18", 90), ("_60_12", 156)])
def test_trained_omegas_are_2_n_and_3_m_vectors(depth: str, vectors: int) -> None:
    plain = count(f"post_ln_transformer{depth}")
    assert count(f"{ARCH}{depth}") == plain
    assert count(f"{ARCH}{depth}", admin_torch_omega="trained") == plain + vectors * 512


@pytest.mark.parametrize("kind", ["fixed", "trained"])
def test_every_residual_is_the_equation(kind: str) -> None:
    model = tiny(ARCH, dropout=0.2, admin_torch_omega=kind).train()
    seen: dict[str, tuple[Tensor, ...]] = {}
    for name, residual in residuals(model).items():
        residual.register_forward_hook(lambda _, inputs, output, name=name: seen.update({name: (*inputs, output)}))
    logits(model, batch())
    assert seen.keys() == residuals(model).keys()
    omega = math.sqrt(7 / math.log(7) - 1)  # 3 x 2 and 2 x 3: six sub-layers in both stacks
    for branch, stream, _, output in seen.values():
        torch.testing.assert_close(output, omega * stream + branch, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["fixed", "trained"])
def test_linear_is_post_ln_to_the_bit(kind: str) -> None:
    model = tiny(ARCH, dropout=0.2, admin_torch_change="linear", admin_torch_omega=kind)
    post_ln = tiny("post_ln_transformer", dropout=0.2, base_init="xavier")
    other = tiny(ARCH, dropout=0.2)
    for name, weight in post_ln.state_dict().items():
        assert torch.equal(weight, model.state_dict()[name])
    for train in (True, False):
        ours, theirs, scaled = (logits(one.train(train), batch(), seed=5) for one in (model, post_ln, other))
        assert torch.equal(ours, theirs)
        assert not torch.equal(scaled, theirs)


def test_omega_travels_with_the_checkpoint() -> None:
    model, other = tiny(ARCH), tiny(ARCH, admin_torch_change="constant")
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(logits(model.eval(), batch()), logits(other.eval(), batch()))


@pytest.mark.parametrize("norm", ["pre", "branch", "none"])
def test_it_needs_a_layernorm_after_the_sum(norm: str) -> None:
    with pytest.raises(UserError) as refused:
        tiny(ARCH, norm=norm)
    expected = f"--residual admin_torch scales the stream for the LayerNorm after it: it needs --norm post, not {norm}"
    assert expected in refused.value.problems


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"share_all_embeddings": True},
        {"admin_torch_change": "constant", "layernorm_embedding": True},
        {"admin_torch_omega": "trained"},
        {"admin_torch_omega": "trained,fixed", "decoder_learned_pos": True},
    ],
    ids=str,
)
def test_stock_computes_the_same_once_it_is_folded(tmp_path: Any, values: dict[str, Any]) -> None:
    model, values = tiny_model(ARCH, **values)
    with torch.no_grad():
        for residual in residuals(model).values():
            if isinstance(residual.omega, nn.Parameter):
                residual.omega.copy_(random_in(0.5, 2.0, residual.omega))
    stock = folded(tmp_path, ARCH, model, values)
    assert_same(model, stock)
    first = model.encoder.layers[0]
    ratio = first.self_attn.q_proj.weight / stock.encoder.layers[0].self_attn.q_proj.weight
    torch.testing.assert_close(ratio, first.self_attn_residual.omega.expand_as(ratio), rtol=1e-5, atol=0)


def test_a_linear_one_has_nothing_to_fold(tmp_path: Any) -> None:
    model, values = tiny_model(ARCH, admin_torch_change="linear")
    stock = folded(tmp_path, ARCH, model, values)
    for name, value in stock.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])
