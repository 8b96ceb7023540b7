"""Merged attention: against a computation position by position, with pads, in training, and step by step."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fairseq_plugins.methods.merged_attention import MergedAttention
from fairseq_plugins.methods.shared.averages import RunningAverage, causal_average, full_average
from tests.building import tiny

C, HEADS = 16, 2


def valid_positions(pads: Tensor | None, sentence: int, until: int) -> list[int]:
    return [k for k in range(until) if pads is None or not pads[sentence, k]]


def average_by_loop(values: Tensor, pads: Tensor | None, causal: bool = True) -> Tensor:
    """Mean over the positions so far that are no pads; zero at a pad."""
    result = torch.zeros_like(values)
    for t in range(values.size(0)):
        for b in range(values.size(1)):
            seen = valid_positions(pads, b, t + 1 if causal else values.size(0))
            if pads is None or not pads[b, t]:
                result[t, b] = sum(values[k, b] for k in seen) / len(seen)
    return result


def merged_by_loop(
    module: MergedAttention, x: Tensor, h: Tensor, pads: Tensor | None, source_pads: Tensor | None
) -> Tensor:
    """(heads of softmax(q k^T / sqrt(d/H)) v  +  mean of x W_v + b_v) W_o + b_o, one position and head at a time."""
    width = C // HEADS
    average = average_by_loop(module.v_proj(x), pads)
    context = torch.zeros_like(x)
    for t in range(x.size(0)):
        for b in range(x.size(1)):
            sources = valid_positions(source_pads, b, h.size(0))
            q, k, v = module.q_proj(x[t, b]), module.k_proj(h[sources, b]), module.v_proj(h[sources, b])
            for head in range(HEADS):
                part = slice(head * width, (head + 1) * width)
                weights = torch.softmax(k[:, part] @ q[part] / math.sqrt(width), dim=0)
                context[t, b, part] = weights @ v[:, part]
    return module.out_proj(context + average)


def attention() -> MergedAttention:
    module = tiny("dsinit_matt_transformer").decoder.layers[0].encoder_attn
    assert isinstance(module, MergedAttention)
    for linear in (module.q_proj, module.k_proj, module.v_proj, module.out_proj):
        nn.init.normal_(linear.bias)  # zero at first, which would hide a bias that is counted twice
    return module.eval()


def right_pads(lengths: list[int], longest: int) -> Tensor:
    return torch.arange(longest) >= torch.tensor(lengths).unsqueeze(1)


lengths_of_a_batch = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@torch.no_grad()
@given(targets=lengths_of_a_batch, data=st.data(), weights=st.booleans())
def test_it_is_the_equation(targets: list[int], data: st.DataObject, weights: bool) -> None:
    module = attention()
    sources = data.draw(st.lists(st.integers(1, 5), min_size=len(targets), max_size=len(targets)))
    x, h = torch.randn(max(targets), len(targets), C), torch.randn(max(sources), len(targets), C)
    pads = right_pads(targets, max(targets)) if min(targets) < max(targets) else None
    # On the left, as fairseq pads a source.
    source_pads = right_pads(sources, max(sources)).flip(1) if min(sources) < max(sources) else None
    mask = torch.full((len(x), len(x)), float("-inf")).triu(1)
    output, found, _ = module.attend(x, h, source_pads, pads, mask, None, weights, False, None)
    torch.testing.assert_close(output, merged_by_loop(module, x, h, pads, source_pads), rtol=1e-4, atol=1e-5)
    assert (found is not None) == weights
    if found is not None:
        assert found.shape == (len(targets), len(x), len(h))
        torch.testing.assert_close(found.sum(dim=-1), torch.ones(len(targets), len(x)))


@given(length=st.integers(1, 9), targets=lengths_of_a_batch, padded=st.booleans(), causal=st.booleans())
def test_average_is_the_loop(length: int, targets: list[int], padded: bool, causal: bool) -> None:
    values = torch.randn(max(length, *targets), len(targets), C)
    pads = right_pads(targets, len(values)) if padded else None
    average = causal_average if causal else full_average
    torch.testing.assert_close(average(values, pads), average_by_loop(values, pads, causal), rtol=1e-5, atol=1e-6)


@given(left=st.integers(0, 4), length=st.integers(1, 5))
def test_pads_on_the_left_never_enter_an_average(left: int, length: int) -> None:
    values = torch.randn(left + length, 1, C)
    pads = (torch.arange(left + length) < left).unsqueeze(0)
    average = causal_average(values, pads)
    torch.testing.assert_close(average[left:], causal_average(values[left:], None))
    assert not average[:left].any()


def test_averages_of_half_precision_do_not_overflow() -> None:
    """The plain sum would be infinite from 65504 on."""
    average = causal_average(torch.full((1000, 1, 1), 100.0, dtype=torch.float16), None)
    torch.testing.assert_close(average.float(), torch.full((1000, 1, 1), 100.0), rtol=2**-10, atol=0)


@torch.no_grad()
@given(chunks=st.lists(st.integers(1, 3), min_size=1, max_size=4), targets=lengths_of_a_batch)
def test_step_by_step_with_pads_is_the_whole(chunks: list[int], targets: list[int]) -> None:
    average, values = RunningAverage(), torch.randn(sum(chunks), len(targets), C)
    pads = right_pads(targets, len(values))
    state: dict[str, dict[str, Tensor | None]] = {}
    parts = zip(values.split(chunks), pads.split(chunks, dim=1), strict=True)
    steps = [average(part, part_pads, state, True) for part, part_pads in parts]
    torch.testing.assert_close(torch.cat(steps), causal_average(values, pads), rtol=1e-5, atol=1e-6)


@torch.no_grad()
@given(order=st.lists(st.integers(0, 3), min_size=1, max_size=6), before=st.integers(1, 3), after=st.integers(1, 3))
def test_the_running_sum_follows_the_beams(order: list[int], before: int, after: int) -> None:
    """A beam that is taken over goes on from the sum of the one it came from, whether or not the batch shrinks."""
    average, prefix = RunningAverage(), torch.randn(before, 4, C)
    state: dict[str, dict[str, Tensor | None]] = {}
    average(prefix, None, state, True)
    average.reorder_incremental_state(state, torch.tensor(order))
    rest = torch.randn(after, len(order), C)
    expected = causal_average(torch.cat([prefix[:, order], rest]), None)[before:]
    torch.testing.assert_close(average(rest, None, state, True), expected, rtol=1e-5, atol=1e-6)


def test_values_are_mapped_by_one_matrix_for_both_halves() -> None:
    """W_v and b_v are one tensor: what the cross-attention learns of them, the average has learnt as well."""
    model = tiny("dsinit_matt_transformer")
    for layer in model.decoder.layers:
        names = {name.split(".")[0] for name, _ in layer.encoder_attn.named_parameters()}
        assert names == {"q_proj", "k_proj", "v_proj", "out_proj"}
        assert layer.self_attn is None
        assert layer.self_attn_layer_norm is None
        assert not hasattr(layer, "self_attn_residual")


def test_gradient_of_the_shared_matrix_comes_from_both_halves() -> None:
    module = attention()
    x, h = torch.randn(3, 2, C), torch.randn(4, 2, C)
    mask = torch.full((3, 3), float("-inf")).triu(1)

    def gradient(target: Tensor, source: Tensor) -> Tensor:
        module.zero_grad()
        module.attend(target, source, None, None, mask, None, False, False, None)[0].sum().backward()
        return module.v_proj.weight.grad.clone()

    # Values of zero have no gradient with respect to their matrix, and a zero query attends evenly.
    of_average = gradient(x, torch.zeros_like(h))
    assert of_average.any()
    mean = causal_average(x, None).sum(dim=(0, 1))
    expected = module.out_proj.weight.detach().sum(dim=0).unsqueeze(1) * mean
    torch.testing.assert_close(of_average, expected)
    assert not torch.allclose(gradient(x, h), of_average)


@torch.no_grad()
def test_decoder_layer_is_the_equation() -> None:
    """Two sub-layers: merged attention, then feed-forward, each LN(x + F(x))."""
    model = tiny("dsinit_matt_transformer").eval()
    x, h = torch.randn(4, 2, C), torch.randn(5, 2, C)
    mask = torch.full((4, 4), float("-inf")).triu(1)
    for layer in model.decoder.layers:
        merged = merged_by_loop(layer.encoder_attn, x, h, None, None)
        middle = layer.encoder_attn_layer_norm(x + merged)
        expected = layer.final_layer_norm(middle + layer.fc2(torch.relu(layer.fc1(middle))))
        actual = layer(x, h, None, None, mask, None, False)[0]
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_dropout_of_attention_touches_the_cross_weights_alone() -> None:
    """With the source's values at zero only the average is left, which no dropout of attention may change."""
    model = tiny("dsinit_matt_transformer", attention_dropout=0.9, dropout=0.0)
    module = model.decoder.layers[0].encoder_attn.train()
    x, h, mask = torch.randn(4, 2, C), torch.zeros(5, 2, C), torch.full((4, 4), float("-inf")).triu(1)
    expected = module.out_proj(causal_average(module.v_proj(x), None))
    torch.testing.assert_close(module.attend(x, h, None, None, mask, None, False, False, None)[0], expected)
    varied = [module.attend(x, h + 1, None, None, mask, None, False, False, None)[0] for _ in range(2)]
    assert not torch.allclose(*varied)
