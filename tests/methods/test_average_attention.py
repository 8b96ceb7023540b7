"""Average attention: against the equations position by position, with pads, step by step, and in every setting."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fairseq_plugins.errors import UserError
from fairseq_plugins.methods.shared.averages import AverageAttention
from tests import by_hand
from tests.building import batch, count, logits, tiny

C, F, HEADS = 16, 24, 2
State = dict[str, dict[str, Tensor | None]]
lengths_of_a_batch = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def attention(ffn: bool = False, dropout: float = 0.0) -> AverageAttention:
    """One whose biases are not zero, so that a lost or doubled one shows."""
    module = AverageAttention(C, HEADS, F if ffn else 0, dropout)
    for linear in (one for one in module.modules() if isinstance(one, nn.Linear)):
        nn.init.normal_(linear.bias)
    return module.eval()


def future(length: int) -> Tensor:
    return torch.full((length, length), float("-inf")).triu(1)


def attend(module: Any, z: Tensor, pads: Tensor | None = None, state: State | None = None) -> Tensor:
    mask = None if state is not None else future(len(z))
    output, weights, _ = module.attend(z, z, pads, pads, mask, state, False, False, None)
    assert weights is None
    return output


def words_of(output: Tensor, pads: Tensor | None) -> Tensor:
    """Rows of words; what stands at a pad is nobody's concern."""
    return output if pads is None else output[~pads.t()]


# The equations -----------------------------------------------------------------------------------------------------


@torch.no_grad()
@given(targets=lengths_of_a_batch, left=st.booleans(), ffn=st.booleans())
def test_it_is_the_equations(targets: list[int], left: bool, ffn: bool) -> None:
    module, z = attention(ffn), torch.randn(max(targets), len(targets), C)
    pads = by_hand.pads_of(targets, left)
    seen = by_hand.seen_so_far(by_hand.no_pads(pads, len(z), len(targets)))
    expected = by_hand.gated_average(module, z, seen)
    torch.testing.assert_close(words_of(attend(module, z, pads), pads), words_of(expected, pads), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_neutral_gate_halves_the_sum_of_word_and_mean() -> None:
    """W = 0 and b = 0: sigmoid(0) = 1/2. The inputs 1, 2, 3, ... have the means 1, 3/2, 2, ..."""
    module = AverageAttention(C, HEADS)
    nn.init.zeros_(module.gate.weight)
    t = torch.arange(1.0, 9.0).view(-1, 1, 1)
    torch.testing.assert_close(attend(module, t.expand(8, 1, C)), ((t + (t + 1) / 2) / 2).expand(8, 1, C))


@pytest.mark.parametrize(("input_gate", "forget_gate"), [(40.0, -200.0), (-200.0, 40.0), (40.0, 40.0)])
@torch.no_grad()
def test_the_first_gate_is_the_word_s_and_the_second_the_mean_s(input_gate: float, forget_gate: float) -> None:
    module, z = AverageAttention(C, HEADS), torch.randn(5, 2, C)
    nn.init.zeros_(module.gate.weight)
    module.gate.bias.copy_(torch.tensor([input_gate] * C + [forget_gate] * C))
    mean = z.cumsum(dim=0) / torch.arange(1, 6).view(-1, 1, 1)
    torch.testing.assert_close(attend(module, z), (input_gate > 0) * z + (forget_gate > 0) * mean)


@torch.no_grad()
def test_without_a_future_mask_the_mean_is_that_of_the_sentence() -> None:
    module, z = attention(), torch.randn(4, 2, C)
    pads = by_hand.pads_of([4, 2])
    seen = by_hand.seen_anywhere(by_hand.no_pads(pads, 4, 2), 4)
    found = module.attend(z, z, pads, pads, None, None, False, False, None)[0]
    expected = by_hand.gated_average(module, z, seen)
    torch.testing.assert_close(words_of(found, pads), words_of(expected, pads), rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("ffn", ["no", "yes"])
def test_decoder_layer_is_the_equation(norm: str, ffn: str) -> None:
    """Only self-attention is replaced: o = LN(x + u(x)), or x + u(LN(x)) under Pre-LN."""
    model = tiny("aan_transformer", norm=norm, aan_ffn=ffn).eval()
    x, h, sources = torch.randn(4, 2, C), torch.randn(5, 2, C), by_hand.seen_anywhere(torch.ones(2, 5) > 0, 4)
    seen = by_hand.seen_so_far(torch.ones(2, 4) > 0)
    for layer in model.decoder.layers:
        sub_layers = [
            (layer.self_attn_layer_norm, lambda z, a=layer.self_attn: by_hand.gated_average(a, z, seen)),
            (
                layer.encoder_attn_layer_norm,
                lambda z, a=layer.encoder_attn: by_hand.softmax_attention(a, z, h, sources)[0],
            ),
            (layer.final_layer_norm, lambda z, one=layer: one.fc2(torch.relu(one.fc1(z)))),
        ]
        expected = x
        for layer_norm, branch in sub_layers:
            if norm == "post":
                expected = layer_norm(expected + branch(expected))
            else:
                expected = expected + branch(layer_norm(expected))
        actual = layer(x, h, None, None, future(4), None, False)[0]
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


# Decoding ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
@given(
    chunks=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    left=st.booleans(),
    ffn=st.booleans(),
)
def test_step_by_step_is_the_whole(chunks: list[int], lengths: list[int], left: bool, ffn: bool) -> None:
    """One new position at a time or several, some of them pads."""
    module, longest = attention(ffn), sum(chunks)
    z = torch.randn(longest, len(lengths) + 1, C)
    pads = by_hand.pads_of([*(min(length, longest) for length in lengths), longest], left)
    state: State = {}
    steps = zip(z.split(chunks), [None] * len(chunks) if pads is None else pads.split(chunks, dim=1), strict=True)
    found = torch.cat([attend(module, part, part_pads, state) for part, part_pads in steps])
    whole = attend(module, z, pads)
    torch.testing.assert_close(words_of(found, pads), words_of(whole, pads), rtol=1e-5, atol=1e-5)


@torch.no_grad()
@given(order=st.lists(st.integers(0, 3), min_size=1, max_size=6), before=st.integers(1, 3), after=st.integers(1, 3))
def test_the_mean_follows_the_beams(order: list[int], before: int, after: int) -> None:
    module, prefix, rest = attention(ffn=True), torch.randn(before, 4, C), torch.randn(after, len(order), C)
    state: State = {}
    attend(module, prefix, None, state)
    for part in module.modules():  # as fairseq looks for it
        if hasattr(part, "reorder_incremental_state"):
            part.reorder_incremental_state(state, torch.tensor(order))
    expected = attend(module, torch.cat([prefix[:, order], rest]))[before:]
    torch.testing.assert_close(attend(module, rest, None, state), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_decoding_state_does_not_grow() -> None:
    """A sum of C numbers and a count for each sentence, in single precision whatever the model's."""
    module, state = attention().half(), State()
    for steps in (1, 50):
        for _ in range(steps):
            attend(module, torch.randn(1, 3, C).half(), None, state)
        tensors = [tensor for entry in state.values() for tensor in entry.values() if tensor is not None]
        assert sorted(tuple(tensor.shape) for tensor in tensors) == [(3, 1), (3, C)]
        assert {tensor.dtype for tensor in tensors} == {torch.float32}


@torch.no_grad()
@pytest.mark.parametrize("in_steps", [False, True])
def test_long_sentences_of_large_numbers_do_not_overflow_in_half_precision(in_steps: bool) -> None:
    """The sum of 1000 numbers would be infinite from 65504 on. A neutral gate gives (100 + 100) / 2."""
    module, z = AverageAttention(C, HEADS).half(), torch.full((1000, 1, C), 100.0).half()
    nn.init.zeros_(module.gate.weight)
    state = State() if in_steps else None
    found = attend(module, z, None, state)
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.float(), z.float(), rtol=2**-9, atol=0)


# Training ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ffn", [False, True])
def test_derivatives_are_those_of_the_equations(ffn: bool) -> None:
    module = attention(ffn).double()
    pads = by_hand.pads_of([4, 2], left=True)
    z = torch.randn(4, 2, C, dtype=torch.float64, requires_grad=True)
    seen = by_hand.seen_so_far(by_hand.no_pads(pads, 4, 2))
    inputs = (z, *module.parameters())
    found = torch.autograd.grad(words_of(attend(module, z, pads), pads).square().sum(), inputs)
    by_equation = torch.autograd.grad(words_of(by_hand.gated_average(module, z, seen), pads).square().sum(), inputs)
    for mine, theirs in zip(found, by_equation, strict=True):
        assert theirs.any()
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)  # 1/t is a number of single precision
    assert not found[0][pads.t()].any(), "a pad on the left is read by nobody"


def test_activation_dropout_stands_behind_relu_and_in_training_alone() -> None:
    module, z = attention(ffn=True, dropout=0.25), torch.randn(400, 5, C)
    hidden: dict[str, Tensor] = {}

    def keep(_: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        hidden.update(before=inputs[0], after=output)

    module.ffn.activation_dropout_module.register_forward_hook(keep)
    attend(module, z)
    assert torch.equal(hidden["before"], hidden["after"])
    attend(module.train(), z)
    assert bool((hidden["before"] >= 0).all())
    active = hidden["before"] > 0
    dropped = hidden["after"][active] == 0
    assert float(dropped.float().mean()) == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / int(active.sum())))
    torch.testing.assert_close(hidden["after"][active][~dropped], hidden["before"][active][~dropped] / 0.75)


def test_rates_of_dropout_reach_their_places() -> None:
    model = tiny("aan_transformer", aan_ffn="yes", activation_dropout=0.3, attention_dropout=0.9, dropout=0.0).train()
    for layer in model.decoder.layers:
        assert layer.self_attn.ffn.activation_dropout_module.p == 0.3
        layer.self_attn.ffn.activation_dropout_module.p = 0.0
        z = torch.randn(4, 2, C)
        assert torch.equal(attend(layer.self_attn, z), attend(layer.self_attn, z)), "there are no weights to drop"


# Parameters --------------------------------------------------------------------------------------------------------


@settings(max_examples=8)
@given(heads=st.integers(1, 3), ffn=st.integers(1, 40), layers=st.tuples(st.integers(1, 3), st.integers(1, 4)))
def test_a_layer_has_2_d_parameters_fewer_and_2_d_f_more_with_the_network(
    heads: int, ffn: int, layers: tuple[int, int]
) -> None:
    """4 d^2 + 2 d for the gate instead of 4 d^2 + 4 d for four maps; 2 d f + f + d for the network."""
    d = 8 * heads
    sizes: dict[str, Any] = {"encoder_layers": layers[0], "decoder_layers": layers[1]}
    for stack in ("encoder", "decoder"):
        sizes[f"{stack}_attention_heads"] = heads
        sizes[f"{stack}_embed_dim"], sizes[f"{stack}_ffn_embed_dim"] = d, ffn
    plain, average = count("post_ln_transformer", **sizes), count("aan_transformer", **sizes)
    assert plain - average == layers[1] * 2 * d
    assert count("aan_transformer", **sizes, aan_ffn="yes") - average == layers[1] * (2 * d * ffn + ffn + d)


def test_the_encoder_s_choice_changes_nothing() -> None:
    stock, encoder_alone = tiny("post_ln_transformer"), tiny("post_ln_transformer", attention="aan,softmax")
    assert all(torch.equal(value, encoder_alone.state_dict()[name]) for name, value in stock.state_dict().items())
    assert encoder_alone.state_dict().keys() == stock.state_dict().keys()
    both, decoder_alone = tiny("aan_transformer"), tiny("aan_transformer", attention="softmax,aan")
    assert both.state_dict().keys() == decoder_alone.state_dict().keys()
    assert torch.equal(logits(both.eval(), batch()), logits(decoder_alone.eval(), batch()))


def test_the_network_is_as_wide_as_the_layer_s_own() -> None:
    model = tiny("aan_transformer", aan_ffn="yes", encoder_ffn_embed_dim=20, decoder_ffn_embed_dim=28)
    for layer in model.decoder.layers:
        assert layer.self_attn.ffn.fc1.weight.shape == layer.fc1.weight.shape == (28, C)


def test_the_network_s_option_is_refused_where_nothing_averages() -> None:
    with pytest.raises(UserError, match="--aan-ffn has no effect here: it belongs to --attention aan"):
        tiny("post_ln_transformer", aan_ffn="yes")
    with pytest.raises(UserError, match="unknown value of --aan-ffn 'ye'"):
        tiny("aan_transformer", aan_ffn="ye")
