"""Dropout with less memory is torch's dropout bit for bit."""

from __future__ import annotations

import pytest
import torch
from fairseq.modules import FairseqDropout
from torch import Tensor

from fairseq_plugins.core.dropout import LeanDropout, lean
from tests.building import tiny


def run(module: FairseqDropout, dtype: torch.dtype) -> tuple[Tensor, Tensor | None, Tensor]:
    """Output, gradient, and the next random number."""
    torch.manual_seed(3)
    x = torch.randn(7, 3, 16).to(dtype).requires_grad_()
    y = module(x)
    y.backward(torch.randn(7, 3, 16).to(dtype))
    return y.detach(), x.grad, torch.rand(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.3, 0.5, 1.0])
def test_output_gradient_and_random_numbers_are_those_of_torch(p: float, dtype: torch.dtype) -> None:
    stock = FairseqDropout(p, "Layer")
    for one, other in zip(run(lean(stock), dtype), run(stock, dtype), strict=True):
        assert torch.equal(one, other)


def test_it_drops_when_fairseqs_does() -> None:
    module, x = LeanDropout(0.5, "Layer"), torch.ones(100)
    assert bool((module(x) == 0).any())
    assert torch.equal(module.eval()(x), x)
    module.make_generation_fast_("layer", retain_dropout=True)
    assert bool((module(x) == 0).any())
    assert (lean(module).p, lean(module).module_name) == (0.5, "Layer")


def test_second_derivative() -> None:
    def dropped(x: Tensor) -> Tensor:
        torch.manual_seed(1)
        return LeanDropout(0.5)(x).sin()

    assert torch.autograd.gradgradcheck(dropped, (torch.randn(4, dtype=torch.float64, requires_grad=True),))


def test_one_byte_a_number_is_kept() -> None:
    kept: list[Tensor] = []
    x = torch.randn(5, 4, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        LeanDropout(0.1)(x)
    assert [tensor.untyped_storage().nbytes() for tensor in kept] == [x.numel()]


def test_every_layer_has_it() -> None:
    model = tiny("post_ln_transformer")
    for layer in (*model.encoder.layers, *model.decoder.layers):
        assert type(layer.dropout_module) is type(layer.activation_dropout_module) is LeanDropout
