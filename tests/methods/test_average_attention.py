"""Attentions with averages or two sources: with pads, step by step, and in half precision.

AAN, merged attention, and a self-attention or a gated average next to the cross-attention, each against a computation
position by position; ``test_equations.py`` has their layers and gradients.
"""

import functools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fairseq_plugins.methods.shared.averages import AverageAttention, RunningAverage, causal_average
from tests import by_hand
from tests.models import batch, logits, tiny
from tests.refusals import refused

C, F, HEADS = 16, 24, 2
State = dict[str, dict[str, Tensor | None]]
Pads = Tensor | None
AVERAGES, MERGED, JOINED = ("aan", "aan_ffn"), ("matt",), ("matt_self", "matt_aan")
ALL = (*AVERAGES, *MERGED, *JOINED)
every_kind = pytest.mark.parametrize("kind", ALL)
lengths_of_a_batch = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@functools.cache
def attention(kind: str) -> Any:
    """One whose biases are not zero, so that a lost or doubled one shows. Not to be changed: all tests share it."""
    if kind in AVERAGES:
        module = AverageAttention(C, HEADS, F if kind == "aan_ffn" else 0, 0.0)
    else:
        module = tiny(f"dsinit_{kind}_transformer").decoder.layers[0].encoder_attn
    for linear in (one for one in module.modules() if isinstance(one, nn.Linear)):
        nn.init.normal_(linear.bias)
    return module.eval()


def future(length: int) -> Tensor:
    return torch.full((length, length), float("-inf")).triu(1)


def attend(
    module: Any, x: Tensor, h: Tensor | None = None, pads: Pads = None, source_pads: Pads = None, state: Any = None
) -> Tensor:
    """To the target so far and, where there is one, to the source; with a state only new positions are given."""
    keys, key_pads = (x, pads) if h is None else (h, source_pads)
    mask = future(len(x)) if state is None else None
    return module.attend(x, keys, key_pads, pads, mask, state, False, False, None)[0]


def by_equation(module: Any, x: Tensor, h: Tensor, pads: Pads = None, source_pads: Pads = None) -> tuple[Any, Any]:
    """Output ``(T, B, C)``, and the weights of the cross-attention, ``(H, B, T, S)``, or None."""
    seen = by_hand.seen_so_far(by_hand.no_pads(pads, x.size(0), x.size(1)))
    if hasattr(module, "gate"):
        return by_hand.gated_average(module, x, seen), None
    sources = by_hand.seen_anywhere(by_hand.no_pads(source_pads, h.size(0), h.size(1)), x.size(0))
    source, weights = by_hand.softmax_attention(module, x, h, sources)
    inner = getattr(module, "self_attn", None)
    if inner is None:  # (heads of the cross-attention + mean of x W_v + b_v) W_o + b_o
        return source + by_hand.average(module.v_proj(x), seen) @ module.out_proj.weight.t(), weights
    if hasattr(inner, "gate"):
        return source + by_hand.gated_average(inner, x, seen), weights
    return source + by_hand.softmax_attention(inner, x, x, seen)[0], weights


def close(output: Tensor, expected: Tensor, pads: Pads = None) -> None:
    """Compare words; what stands at a pad is nobody's concern."""
    words = torch.ones(output.shape[:2], dtype=torch.bool) if pads is None else ~pads.t()
    torch.testing.assert_close(output[words], expected[words], rtol=1e-4, atol=1e-5)


@torch.no_grad()
@every_kind
@given(targets=lengths_of_a_batch, data=st.data(), need=st.sampled_from([(False, False), (True, False), (True, True)]))
def test_it_is_the_equation(kind: str, targets: list[int], data: st.DataObject, need: tuple[bool, bool]) -> None:
    """A self-attention has no position to look at from a pad on the left, in stock fairseq too."""
    module = attention(kind)
    left = kind in AVERAGES and data.draw(st.booleans())
    sources = data.draw(st.lists(st.integers(1, 5), min_size=len(targets), max_size=len(targets)))
    x, h = torch.randn(max(targets), len(targets), C), torch.randn(max(sources), len(targets), C)
    pads, source_pads = by_hand.pads_of(targets, left), by_hand.pads_of(sources, left=True)
    keys = (x, pads) if kind in AVERAGES else (h, source_pads)
    output, found, _ = module.attend(x, *keys, pads, future(len(x)), None, *need, None)
    expected, weights = by_equation(module, x, h, pads, source_pads)
    close(output, expected, pads)
    assert (found is not None) == (need[0] and weights is not None)
    if found is not None:
        torch.testing.assert_close(found, weights if need[1] else weights.mean(dim=0), rtol=1e-4, atol=1e-6)


@given(length=st.integers(1, 9), targets=lengths_of_a_batch, left=st.booleans(), causal=st.booleans())
def test_an_average_is_the_loop_and_zero_at_pads(length: int, targets: list[int], left: bool, causal: bool) -> None:
    values = torch.randn(max(length, *targets), len(targets), C)
    pads = by_hand.pads_of([*targets, len(values)], left)
    pads = None if pads is None else pads[:-1]
    valid = by_hand.no_pads(pads, len(values), len(targets))
    seen = by_hand.seen_so_far(valid) if causal else by_hand.seen_anywhere(valid, len(values))
    average = RunningAverage()(values, pads, None, causal)
    torch.testing.assert_close(average, by_hand.average(values, seen) * valid.t().unsqueeze(-1), rtol=1e-5, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("state", [None, {}])
def test_long_sentences_of_large_numbers_do_not_overflow_in_half_precision(state: State | None) -> None:
    """The sum of 1000 numbers would be infinite from 65504 on. A neutral gate gives (100 + 100) / 2."""
    module, z = AverageAttention(C, HEADS).half(), torch.full((1000, 1, C), 100.0).half()
    nn.init.zeros_(module.gate.weight)
    for found in (attend(module, z, state=state), causal_average(z, None)):
        assert found.dtype == torch.float16
        torch.testing.assert_close(found.float(), z.float(), rtol=2**-9, atol=0)


# Decoding ------------------------------------------------------------------------------------------------------------


@torch.no_grad()
@every_kind
@given(chunks=st.lists(st.integers(1, 4), min_size=1, max_size=5), lengths=lengths_of_a_batch, left=st.booleans())
def test_step_by_step_is_the_whole(kind: str, chunks: list[int], lengths: list[int], left: bool) -> None:
    """One new position at a time or, in an average, several, some of them pads."""
    module, state, longest = attention(kind), State(), sum(chunks)
    x, h = torch.randn(longest, len(lengths) + 1, C), torch.randn(4, len(lengths) + 1, C)
    left = left and kind in AVERAGES
    pads = by_hand.pads_of([*(min(length, longest) for length in lengths), longest], left)
    chunks = [1] * longest if kind == "matt_self" else chunks
    steps = zip(x.split(chunks), [None] * len(chunks) if pads is None else pads.split(chunks, dim=1), strict=True)
    source = None if kind in AVERAGES else h
    output = torch.cat([attend(module, part, source, part_pads, None, state) for part, part_pads in steps])
    close(output, by_equation(module, x, h, pads)[0], pads)


@torch.no_grad()
def test_the_decoding_state_does_not_grow() -> None:
    """A sum of C numbers and a count for each sentence, in single precision for models of every precision."""
    average, state = RunningAverage(), State()
    for _ in range(50):
        average(torch.randn(1, 3, C).half(), None, state, True)
        tensors = [tensor for entry in state.values() for tensor in entry.values() if tensor is not None]
        assert sorted(tuple(tensor.shape) for tensor in tensors) == [(3, 1), (3, C)]
        assert {tensor.dtype for tensor in tensors} == {torch.float32}


# Widths, stacks -----------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("kind", JOINED)
def test_stacks_of_different_widths(kind: str) -> None:
    """Nothing is shared between source and target, so their widths may differ."""
    model = tiny(f"dsinit_{kind}_transformer", encoder_embed_dim=24).eval()
    x, h, module = torch.randn(4, 2, C), torch.randn(5, 2, 24), model.decoder.layers[0].encoder_attn
    close(attend(module, x, h), by_equation(module, x, h)[0])


@pytest.mark.parametrize("part", ["aan", "matt", "matt_self", "matt_aan"])
def test_in_an_encoder_it_would_change_nothing(part: str) -> None:
    both, decoder_alone = (tiny("post_ln_transformer", attention=one) for one in (part, f"softmax,{part}"))
    assert both.state_dict().keys() == decoder_alone.state_dict().keys()
    assert torch.equal(logits(both.eval(), batch()), logits(decoder_alone.eval(), batch()))
    line = f"--attention {part},softmax: {part} is an attention of decoders, and has no effect in the encoder"
    assert refused(tiny, "post_ln_transformer", attention=f"{part},softmax") == line
