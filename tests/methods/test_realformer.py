"""RealFormer: what its chains of logits carry, and what is kept and returned.

Legend: T target time, S source time, B batch, C width, H heads, D width of a head.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.models import inputs as batch
from tests.models import logits, tiny

ARCH = "realformer_transformer"
T, S, B, C, H, D = 4, 5, 2, 16, 2, 8


def with_biases(model: nn.Module) -> nn.Module:
    """In eval mode, with attention biases that are not zero."""
    for name, parameter in model.named_parameters():
        if "_proj.bias" in name:
            nn.init.normal_(parameter)
    return model.eval()


def own_logits(module: nn.Module, x: Tensor, h: Tensor) -> Tensor:
    """Q K^T / sqrt(D), ``(B, H, T, S)``, one head at a time."""
    q, k = module.q_proj(x).transpose(0, 1), module.k_proj(h).transpose(0, 1)
    heads = [slice(head * D, (head + 1) * D) for head in range(H)]
    return torch.stack([q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(D) for part in heads], dim=1)


def pads(length: int, left: bool) -> Tensor:
    """The second sentence is two shorter than the first."""
    result = torch.zeros(B, length, dtype=torch.bool)
    result[1, (slice(0, 2) if left else slice(length - 2, length))] = True
    return result


@torch.no_grad()
def test_weights_are_returned_as_they_are_asked_for() -> None:
    module = with_biases(tiny(ARCH)).decoder.layers[0].encoder_attn
    x, h, below = torch.randn(T, B, C), torch.randn(S, B, C), torch.randn(B * H, T, S)

    def attend(need_weights: bool, need_head_weights: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
        return module.attend(x, h, pads(S, left=True), None, None, None, need_weights, need_head_weights, below)

    outputs = [attend(*flags) for flags in ((False, False), (True, False), (False, True), (True, True))]
    assert outputs[0][1] is None
    mean, heads, both = (weights for _, weights, _ in outputs[1:])
    assert heads.shape == (H, B, T, S)
    assert torch.equal(heads, both)
    torch.testing.assert_close(mean, heads.mean(dim=0))
    torch.testing.assert_close(heads.sum(dim=-1), torch.ones(H, B, T))
    assert not heads[:, 1, :, :2].any()
    assert bool((heads[:, 0] > 0).all())
    assert all(torch.equal(output, outputs[0][0]) for output, _, _ in outputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_what_is_carried_is_finite_under_masks_and_float32(dtype: torch.dtype) -> None:
    """Source pads on the left, target pads on the right and the future are all masked."""
    inputs, carried = batch(), []
    assert bool(inputs.src_tokens.eq(1).any())
    assert bool(inputs.prev_output_tokens.eq(1).any())
    model = with_biases(tiny(ARCH)).to(dtype)
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.register_forward_hook(lambda _, __, result: carried.extend(result[1:-1]))
    output = logits(model, inputs)
    scores = [one for one in carried if one is not None and one.size(0) == 3 * H]  # not the weights of the heads
    assert len(scores) == 3 + 2 * 2
    assert {one.dtype for one in scores} == {torch.float64 if dtype == torch.float64 else torch.float32}
    assert output.dtype == dtype
    assert all(bool(one.isfinite().all()) for one in (*scores, output))


@torch.no_grad()
def test_a_sum_of_logits_does_not_lose_the_digits_of_half_precision() -> None:
    """1/8 on top of 2048 is lost in float16, 100 times; the sum of the logits keeps it."""
    module = tiny(ARCH).encoder.layers[0].self_attn.half()
    queries, keys = torch.zeros(B * H, T, D).half(), torch.zeros(B * H, S, D).half()
    queries[..., 0], keys[..., 0] = 0.125, 1.0
    scores = torch.full((B * H, T, S), 2048.0)
    for _ in range(100):
        scores = module.accumulate(queries, keys, scores)
    assert torch.equal(scores, torch.full((B * H, T, S), 2048 + 12.5))
    assert torch.full((1,), 2048.0).half() + 0.125 == 2048


@torch.no_grad()
def test_the_scores_below_stay_as_they_are() -> None:
    """A sum in place must not be that of the layer below, which activation checkpointing reads again."""
    layer = with_biases(tiny(ARCH)).encoder.layers[1]
    below = torch.randn(B * H, S, S)
    copy, x = below.clone(), torch.randn(S, B, C)
    outputs = [layer(x, pads(S, left=True), below) for _ in range(2)]
    assert torch.equal(below, copy)
    assert torch.equal(outputs[0][1], outputs[1][1])


@torch.no_grad()
def test_a_layer_that_is_left_out_passes_the_chain_on() -> None:
    model = with_biases(tiny(ARCH, encoder_layerdrop=0.5))
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    model.train()
    ran: list[tuple[int, Tensor, Tensor]] = []
    for number, layer in enumerate(model.encoder.layers.children()):

        def note(_: Any, arguments: Any, result: Any, number: int = number) -> None:
            ran.append((number, arguments[0], result[1]))

        layer.register_forward_hook(note)
    for seed in range(100):
        ran.clear()
        torch.manual_seed(seed)
        model.encoder(batch().src_tokens, batch().src_lengths)
        if [number for number, _, _ in ran] == [0, 2]:
            break
    (_, _, first), (number, x, last) = ran
    assert number == 2
    top = list(model.encoder.layers.children())[2].self_attn
    torch.testing.assert_close(last, first + own_logits(top, x, x).flatten(0, 1), rtol=1e-5, atol=1e-5)


# Depth, memory, decoding -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_autograd_keeps_no_scores(mode: str) -> None:
    """Each layer keeps its weights alone, as every attention does that is not fused."""
    inputs = batch(source=11, sentences=3)
    for layers in (2, 5):
        model = tiny(ARCH, encoder_layers=layers, realformer_logits=mode, dropout=0.0).train()
        kept: list[Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda one, kept=kept: kept.append(one) or one, lambda one: one):
            output = model.encoder(inputs.src_tokens, inputs.src_lengths)["encoder_out"][0]
        assert output.requires_grad
        of_size = [one for one in kept if one.numel() == 3 * H * 11 * 11 and one.is_floating_point()]
        assert len({one.untyped_storage().data_ptr() for one in of_size}) == layers


def test_dropout_of_attention_follows_the_softmax() -> None:
    """Weights are dropped and scaled up; what is carried and what is returned are not."""
    module = with_biases(tiny(ARCH, attention_dropout=0.5)).decoder.layers[0].encoder_attn
    x, h, below = torch.randn(T, B, C), torch.randn(S, B, C), torch.randn(B * H, T, S)
    arguments = (x, h, None, None, None, None, True, True, below)
    expected, weights, scores = module.attend(*arguments)
    drawn = [module.train().attend(*arguments) for _ in range(400)]
    assert all(torch.equal(one, weights) and torch.equal(carried, scores) for _, one, carried in drawn)
    outputs = torch.stack([output for output, _, _ in drawn])
    assert outputs.std(dim=0).min() > 0.01
    deviation = (outputs.mean(dim=0) - expected).abs() / (outputs.std(dim=0) / math.sqrt(400))
    assert deviation.max() < 5
