"""Dropout with less memory is torch's dropout bit for bit, and each dropout of a model has the rate asked for it."""

from __future__ import annotations

import itertools

import torch
from fairseq.modules import FairseqDropout
from torch import Tensor

from fairseq_plugins.core.dropout import LeanDropout
from tests.core.saved import saved_tensors
from tests.models import tiny


def run(module: FairseqDropout, dtype: torch.dtype) -> tuple[Tensor, Tensor | None, Tensor]:
    """Output, gradient, and the next random number."""
    torch.manual_seed(3)
    x = torch.randn(7, 3, 16).to(dtype).requires_grad_()
    y = module(x)
    y.backward(torch.randn(7, 3, 16).to(dtype))
    return y.detach(), x.grad, torch.rand(1)


def test_output_gradient_and_random_numbers_are_those_of_torch() -> None:
    dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    for p, dtype in itertools.product((0.0, 0.1, 0.3, 0.5, 1.0), dtypes):
        stock = FairseqDropout(p, "Layer")
        for ours, theirs in zip(run(LeanDropout(p, "Layer"), dtype), run(stock, dtype), strict=True):
            assert torch.equal(ours, theirs), (p, dtype)


def test_it_drops_when_fairseqs_does() -> None:
    module, x = LeanDropout(0.5, "Layer"), torch.ones(100)
    assert bool((module(x) == 0).any())
    assert torch.equal(module.eval()(x), x)
    module.make_generation_fast_("layer", retain_dropout=True)
    assert bool((module(x) == 0).any())


def test_second_derivative() -> None:
    def dropped(x: Tensor) -> Tensor:
        torch.manual_seed(1)
        return LeanDropout(0.5)(x).sin()

    assert torch.autograd.gradgradcheck(dropped, (torch.randn(4, dtype=torch.float64, requires_grad=True),))


def test_one_byte_a_number_is_kept() -> None:
    x = torch.randn(5, 4, requires_grad=True)
    kept = saved_tensors(lambda: LeanDropout(0.1)(x))
    assert [tensor.untyped_storage().nbytes() for tensor in kept] == [x.numel()]


def test_every_layer_has_it() -> None:
    model = tiny("post_ln_transformer")
    for layer in (*model.encoder.layers, *model.decoder.layers):
        assert type(layer.dropout_module) is type(layer.activation_dropout_module) is LeanDropout


def test_embeddings_may_have_a_rate_of_their_own() -> None:
    rates = {"dropout": 0.1, "attention_dropout": 0.2, "activation_dropout": 0.3}
    expected = {"activation": 0.3, "encoder_attn": 0.2, "self_attn": 0.2, "layers": 0.1}
    archs = (
        "aan_transformer",
        "dsinit_matt_transformer",
        "admin_transformer",
        "rezero_transformer_lm",
        "pre_ln_s2t_transformer",
    )
    for arch, own in itertools.product(archs, ({}, {"embedding_dropout": 0.0}, {"embedding_dropout": 0.05})):
        modules = tiny(arch, **rates, **own, **({"aan_ffn": "yes"} if "aan" in arch else {})).named_modules()
        found = {name: module.p for name, module in modules if isinstance(module, FairseqDropout)}
        kinds = {name: next((kind for kind in expected if kind in name), "embedding") for name in found}
        wanted = {**expected, "embedding": own.get("embedding_dropout", 0.1)}
        assert {name: rate for name, rate in found.items() if rate != wanted[kinds[name]]} == {}, arch
        assert {"layers", "activation", "embedding"} <= set(kinds.values())
