"""Side streams: hyper-connections, mHC, attention residuals; and what attentions carry for a moment."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_plugins.methods.attention_residuals import AttentionResidual, Blocks, mixture
from fairseq_plugins.methods.hyper_connections import (
    DynamicConnection,
    HyperConnection,
    ManifoldConnection,
    doubly_stochastic,
)
from fairseq_plugins.methods.rezero import layer_scale_start
from tests.core.saved import saved_tensors
from tests.models import batch, logits, tiny


@torch.no_grad()
@pytest.mark.parametrize("weights", ["static", "dynamic"])
def test_hyper_connections_start_as_pre_ln(weights: str) -> None:
    """Every stream is that of Pre-LN, and a LayerNorm does not see that the output is four times as large."""
    model = tiny("hyper_connections_transformer", hyper_weights=weights).eval()
    plain, weights_of = tiny("pre_ln_transformer").eval(), model.state_dict()
    plain.load_state_dict({name: weights_of[name] for name in plain.state_dict()})
    torch.testing.assert_close(logits(model, batch()), logits(plain, batch()), rtol=1e-4, atol=1e-4)


def test_mhc_mixes_by_a_doubly_stochastic_matrix() -> None:
    """So the mean of the streams only changes by what is written; at first hardly anything is mixed."""
    own, ones = ManifoldConnection(6, 4, number=2), torch.ones(4)
    square = doubly_stochastic(torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1)))
    torch.testing.assert_close(square.sum(-1), ones.expand(2, 3, 4))
    torch.testing.assert_close(square.sum(-2), ones.expand(2, 3, 4), rtol=1e-4, atol=1e-4)
    read, mix, write = own.weights(torch.randn(5, 2, 4, 6))
    sigmoid = 1 / (1 + math.exp(-1))
    first = torch.tensor([1 - sigmoid, 1 - sigmoid, sigmoid, 1 - sigmoid])
    torch.testing.assert_close(read, first.expand(5, 2, 1, 4))
    torch.testing.assert_close(write.squeeze(-1), 2 * first.expand(5, 2, 4))
    torch.testing.assert_close(mix, torch.eye(4).expand(5, 2, 4, 4), rtol=0, atol=4 * math.exp(-8))


@pytest.mark.parametrize("weights", [HyperConnection, DynamicConnection])
def test_streams_are_not_rounded_in_mixed_precision(weights: type[HyperConnection]) -> None:
    """A matrix product would be one in bfloat16, once for every sub-layer; the identity changes nothing."""
    own, streams = weights(6, 4, number=6), torch.randn(5, 2, 4, 6)
    with torch.autocast("cpu", torch.bfloat16):
        read, kept = own.pre(streams[:, :, 0], streams)
        assert torch.equal(read, streams[:, :, 2])
        assert torch.equal(own.post(torch.zeros(5, 2, 6), streams[:, :, 0], kept), streams)


@pytest.mark.parametrize("mean", [100.0, 1000.0])
def test_streams_are_normalised_beside_a_large_mean(mean: float) -> None:
    """Deviation 1. The difference of two squares would lose four digits of the weights at 100, and at 1,000 all."""
    own, draw = DynamicConnection(512, 4, number=0), torch.Generator().manual_seed(3)
    torch.nn.init.normal_(own.map, std=0.05, generator=draw)
    torch.nn.init.ones_(own.scales)
    streams = torch.randn(20, 2, 4, 512, generator=draw) + mean
    found = []
    for dtype in (torch.double, torch.float):
        x = streams.to(dtype).requires_grad_()
        weights = own.to(dtype).weights(x)
        total = sum(one.cos().sum() for one in weights).double()
        [gradient] = torch.autograd.grad(total, x)
        found.append([*(one.detach().double() for one in weights), gradient.double()])
    for exact, rounded in zip(*found, strict=True):
        assert 0 < (rounded - exact).abs().max() < 1e-6 * mean * exact.abs().max()


def test_normalised_streams_are_not_kept() -> None:
    own, streams = DynamicConnection(256, 4, number=0), torch.randn(3, 2, 4, 256, requires_grad=True)
    kept = [*saved_tensors(lambda: torch.cat([part.flatten() for part in own.weights(streams)])), streams]
    sizes = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in kept}
    assert sum(sizes.values()) < 1.5 * streams.nbytes


def test_attention_residuals_keep_each_block_once() -> None:
    """Copies of all blocks below, in each of 24 sub-layers, would be more than twelve times as much."""
    x, inputs = torch.randn(3, 2, 256, dtype=torch.double), list[Tensor]()
    residuals = [AttentionResidual(256, begins=True, lowest=number == 0).double() for number in range(24)]

    def run() -> Tensor:
        blocks, stream = Blocks(256).start(x), x
        for residual in residuals:
            read, blocks = residual.pre(stream, blocks)
            inputs.append(read)
            branch = read.sin()
            blocks, stream = residual.post(branch, stream, blocks), residual(branch, stream, x)
        return blocks

    storages = [one.untyped_storage() for one in saved_tensors(run)]
    assert sum({one.data_ptr(): one.nbytes() for one in storages}.values()) < 6 * 25 * x.nbytes
    # The queries are 0, so that each input is a mean; in the gradient each block is there once.
    states = [x, *(one.sin() for one in inputs)]
    torch.testing.assert_close(inputs[-1], torch.stack(states[:-1]).mean(dim=0))


def test_gradients_of_attention_residuals() -> None:
    """First and second derivatives against differences."""
    residuals = [AttentionResidual(3, begins=number != 2, lowest=True) for number in range(4)]
    queries = [torch.randn(3, dtype=torch.double, requires_grad=True) for _ in residuals[1:]]

    def output(x: Tensor, *queries: Tensor) -> Tensor:
        blocks, stream = Blocks(3).start(x), x
        for residual, query in zip(residuals, (None, *queries), strict=True):
            residual.query = query  # type: ignore[assignment]
            read, blocks = residual.pre(stream, blocks)
            branch = torch.sin(read)
            blocks, stream = residual.post(branch, stream, blocks), residual(branch, stream, x)
        return mixture(queries[0], blocks, stream.unsqueeze(0))

    x = torch.randn(2, 1, 3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(output, (x, *queries))
    assert torch.autograd.gradgradcheck(output, (x, *queries))


def begins(layers: int, **options: str) -> list[list[int]]:
    """The sub-layers of each stack that begin a block, from 0."""
    options = {f"attention_residual_{name}": value for name, value in options.items()}
    model: Any = tiny("attention_residuals_transformer", encoder_layers=layers, decoder_layers=layers, **options)
    stacks = [[m.begins for m in stack.modules() if hasattr(m, "begins")] for stack in (model.encoder, model.decoder)]
    return [[number for number, begin in enumerate(stack) if begin] for stack in stacks]


def test_blocks_begin_at_whole_layers() -> None:
    """The pseudo-code tests `layer_number % (block_size // 2) == 0`: its layers, too, have several sub-layers."""
    for layers, blocks in ((18, 8), (18, 1), (6, 2), (7, 3), (4, 9)):
        size = math.ceil(layers / blocks)
        starts = [layer for layer in range(layers) if layer % size == 0]
        assert begins(layers, blocks=str(blocks)) == [[2 * layer for layer in starts], [3 * layer for layer in starts]]
    assert begins(4, blocks="0") == [[*range(8)], [*range(12)]]


def test_blocks_of_earlier_checkpoints_begin_at_any_sub_layer() -> None:
    encoder, decoder = begins(18, blocks="8", begin="sub_layer")
    assert encoder == [0, 5, 10, 15, 20, 25, 30, 35]
    assert decoder == [0, 7, 14, 21, 28, 35, 42, 49]
    assert begins(4, blocks="9", begin="sub_layer") == [[*range(8)], [0, 2, 4, 6, 8, 10]]


def test_attentions_keep_nothing_after_a_call() -> None:
    for arch, name in (("value_residual_transformer", "first"), ("gated_attention_transformer", "open_by")):
        model = tiny(arch)
        logits(model, batch())
        kept = [getattr(module, name) for module in model.modules() if hasattr(module, name)]
        assert kept == [None] * 7


def test_layer_scale_starts_at_the_paper_s_values() -> None:
    for layers, value in ((12, 0.1), (18, 0.1), (24, 1e-5), (36, 1e-6)):
        assert layer_scale_start(layers) == value
