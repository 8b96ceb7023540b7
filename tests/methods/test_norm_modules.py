"""Modules in the place of a LayerNorm: RMSNorm, DyT, Derf, at every place of every norm."""

import copy
import itertools
from collections.abc import Callable

import pytest
import torch
from torch import nn

from fairseq_plugins.core.attention import Attention
from fairseq_plugins.core.method import PARTS, Axis
from fairseq_plugins.methods.derf import DynamicErf
from fairseq_plugins.methods.dyt import DynamicTanh
from tests.core.saved import saved_tensors
from tests.models import batch, logits, tiny

KINDS: dict[str, Callable[..., nn.Module]] = {"rms_norm": nn.RMSNorm, "dyt": DynamicTanh, "derf": DynamicErf}


@pytest.mark.parametrize("name", KINDS)
def test_first_and_second_derivatives(name: str) -> None:
    module = KINDS[name](4, 0.7).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) / 5)
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    inputs = (x, *module.parameters())
    assert torch.autograd.gradcheck(lambda x, *_: module(x), inputs)
    assert torch.autograd.gradgradcheck(lambda x, *_: module(x), inputs)


def test_gradients_are_those_at_the_parameters_of_the_forward_pass() -> None:
    for kind in KINDS.values():
        module, x = kind(4, 0.7), torch.randn(3, 4, requires_grad=True)
        others = {key: (value.detach() + 0.3).requires_grad_() for key, value in module.named_parameters()}
        output = torch.func.functional_call(module, others, x)
        gradients = torch.autograd.grad(output.square().sum(), (x, *others.values()))
        module.load_state_dict(others)
        expected = torch.autograd.grad(module(x).square().sum(), (x, *module.parameters()))
        torch.testing.assert_close(gradients, expected)


def test_they_keep_their_input_and_at_most_the_value() -> None:
    for name, numbers in (("dyt", 2), ("derf", 2)):
        module, x = KINDS[name](64, 0.7), torch.randn(25, 16, 64, requires_grad=True)
        kept = saved_tensors(lambda module=module, x=x: module(x))
        assert len({one.untyped_storage().data_ptr() for one in kept if one.numel() == x.numel()}) == numbers, name


def test_gradients_in_half_precision() -> None:
    for name, dtype in itertools.product(KINDS, (torch.float16, torch.bfloat16)):
        # Positive numbers: sums of both signs, as for alpha, would be small compared with their terms.
        module, x = KINDS[name](64, 0.7), torch.rand(25, 16, 64, requires_grad=True)
        half, y = copy.deepcopy(module).to(dtype), x.detach().to(dtype).requires_grad_()
        ahead = torch.rand(25, 16, 64)
        module(x).backward(ahead)
        half(y).backward(ahead.to(dtype))
        for exact, rounded in zip((x, *module.parameters()), (y, *half.parameters()), strict=True):
            assert exact.grad is not None
            assert rounded.grad is not None
            assert rounded.grad.dtype == dtype
            error = (rounded.grad.float() - exact.grad).norm() / exact.grad.norm()
            assert error < 8 * torch.finfo(dtype).eps, name


def test_epsilon_at_the_root() -> None:
    """The authors' code: x / (RMS + 1e-8), RMS the length over the root of the width (rmsnorm 2e726f1)."""
    model = tiny("rms_norm_transformer", rms_norm_epsilon="1e-8", rms_norm_epsilon_in="root").eval()
    plain = tiny("rms_norm_transformer").eval()
    x = torch.randn(5, 16) / 100
    found = model.encoder.layer_norm(x)
    torch.testing.assert_close(found, x / (x.norm(dim=-1, keepdim=True) * 16**-0.5 + 1e-8))
    with torch.no_grad():
        assert 1e-6 < float((logits(model, batch()) - logits(plain, batch())).abs().max()) < 1e-4


def test_a_norm_over_the_depth_keeps_the_names_of_its_parameters() -> None:
    for module in (*KINDS, "scale_norm"):
        models = [tiny("deep_transformer", norm_position=at, norm_type=module) for at in ("layernorm_scaling", "pre")]
        assert models[0].state_dict().keys() == models[1].state_dict().keys()


def test_no_place_keeps_a_layer_norm() -> None:
    # Three layers of the encoder with two sub-layers, two of the decoder with three, and the tops; Sub-LN has one norm
    # less in cross-attention.
    numbers = (("post", 12), ("pre", 12 + 2), ("peri", 2 * 12 + 2), ("sub", 2 * 12 + 2 - 2))
    for name, (norm, number) in itertools.product(KINDS, numbers):
        model = tiny("deep_transformer", norm_position=norm, norm_type=name)
        kinds = [type(module) for module in model.modules()]
        assert kinds.count(KINDS[name]) == number
        assert nn.LayerNorm not in kinds


def test_one_stack_may_keep_its_layer_norms() -> None:
    model = tiny("deep_transformer", norm_position="pre", norm_type="layer_norm,derf")
    assert {type(one) for one in model.encoder.modules()} & {nn.LayerNorm, DynamicErf} == {nn.LayerNorm}
    assert {type(one) for one in model.decoder.modules()} & {nn.LayerNorm, DynamicErf} == {DynamicErf}


def test_heads_have_the_norm_module_of_the_stack() -> None:
    for module in PARTS[Axis.NORM_TYPE]:
        model = tiny("deep_transformer", norm_position="pre", attention="qk_norm", norm_type=module)
        kinds = {type(one.q_proj.norm) for one in model.modules() if isinstance(one, Attention)}
        assert kinds == {type(model.encoder.layers[0].final_layer_norm)}


def test_starts_of_dyt() -> None:
    names = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm", "layer_norm")
    for said, starts in (({}, (0.5,) * 4), ({"dyt_attention_alpha": "0.8", "dyt_alpha": "0.2"}, (0.8, 0.8, 0.2, 0.2))):
        for name, value in tiny("dyt_transformer", **said).named_parameters():
            if name.endswith(".alpha"):
                assert value.item() == pytest.approx(starts[names.index(name.split(".")[-2])]), name


def test_dropout_is_inside_of_the_branch() -> None:
    """LN(dropout(F)): with everything dropped but nothing else the LayerNorm's bias remains, so the sum is the stream
    plus that bias."""
    layer = tiny("gpt2_norm_transformer", dropout=0.5).train().encoder.layers[0]
    layer.dropout_module.forward = torch.zeros_like
    x = torch.randn(5, 2, 16)
    torch.testing.assert_close(layer(x, None)[0], x)
    nn.init.constant_(layer.final_layer_norm.bias, 3.0)
    torch.testing.assert_close(layer(x, None)[0], x + 3.0)
