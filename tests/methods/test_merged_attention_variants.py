"""Self-attention or a gated average beside the cross-attention: against the equations, step by step, and in size."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fairseq_plugins.core.attention import Attention
from fairseq_plugins.errors import UserError
from fairseq_plugins.methods.merged_attention_variants import JoinedAttention
from tests import by_hand
from tests.building import count, tiny

C = 16
PARTS = ["matt_self", "matt_aan"]
State = dict[str, dict[str, Tensor | None]]
lengths_of_a_batch = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@functools.cache
def attention(part: str) -> JoinedAttention:
    """One whose biases are not zero, so that a lost or doubled one shows. Not to be changed: all tests share it."""
    module = tiny(f"dsinit_{part}_transformer").decoder.layers[0].encoder_attn
    assert isinstance(module, JoinedAttention)
    for linear in (one for one in module.modules() if isinstance(one, nn.Linear)):
        nn.init.normal_(linear.bias)
    return module.eval()


def future(length: int) -> Tensor:
    return torch.full((length, length), float("-inf")).triu(1)


def words_of(output: Tensor, pads: Tensor | None) -> Tensor:
    """Rows of words; what stands at a pad is nobody's concern."""
    return output if pads is None else output[~pads.t()]


def by_equation(
    module: Any, x: Tensor, h: Tensor, pads: Tensor | None = None, source_pads: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """SA(x) + CA(x, h), or u + CA(x, h), and the weights of CA, ``(H, B, T, S)``."""
    seen = by_hand.seen_so_far(by_hand.no_pads(pads, x.size(0), x.size(1)))
    if hasattr(module.self_attn, "gate"):
        target = by_hand.gated_average(module.self_attn, x, seen)
    else:
        target = by_hand.softmax_attention(module.self_attn, x, x, seen)[0]
    sources = by_hand.seen_anywhere(by_hand.no_pads(source_pads, h.size(0), h.size(1)), x.size(0))
    source, weights = by_hand.softmax_attention(module, x, h, sources)
    return target + source, weights


# The equations -----------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("part", PARTS)
@given(targets=lengths_of_a_batch, data=st.data(), need=st.sampled_from([(False, False), (True, False), (True, True)]))
def test_it_is_the_equation(part: str, targets: list[int], data: st.DataObject, need: tuple[bool, bool]) -> None:
    module = attention(part)
    sources = data.draw(st.lists(st.integers(1, 5), min_size=len(targets), max_size=len(targets)))
    x, h = torch.randn(max(targets), len(targets), C), torch.randn(max(sources), len(targets), C)
    pads, source_pads = by_hand.pads_of(targets), by_hand.pads_of(sources, left=True)
    output, found, _ = module.attend(x, h, source_pads, pads, future(len(x)), None, *need, None)
    expected, weights = by_equation(module, x, h, pads, source_pads)
    torch.testing.assert_close(words_of(output, pads), words_of(expected, pads), rtol=1e-4, atol=1e-5)
    assert (found is not None) == need[0]
    if found is not None:
        torch.testing.assert_close(found, weights if need[1] else weights.mean(dim=0), rtol=1e-4, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("part", PARTS)
def test_decoder_layer_is_the_equation(part: str) -> None:
    """Two sub-layers: LN(x + SA(x) + CA(x, h)), then LN(x + FFN(x)); one residual connection and one LayerNorm each."""
    model = tiny(f"dsinit_{part}_transformer").eval()
    x, h = torch.randn(4, 2, C), torch.randn(5, 2, C)
    for layer in model.decoder.layers:
        assert layer.self_attn is None
        assert layer.self_attn_layer_norm is None
        assert not hasattr(layer, "self_attn_residual")
        middle = layer.encoder_attn_layer_norm(x + by_equation(layer.encoder_attn, x, h)[0])
        expected = layer.final_layer_norm(middle + layer.fc2(torch.relu(layer.fc1(middle))))
        actual = layer(x, h, None, None, future(4), None, False)[0]
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("part", PARTS)
def test_stacks_of_different_widths(part: str) -> None:
    """Nothing is shared between source and target, so their widths may differ."""
    model = tiny(f"dsinit_{part}_transformer", encoder_embed_dim=24).eval()
    x, h = torch.randn(4, 2, C), torch.randn(5, 2, 24)
    module = model.decoder.layers[0].encoder_attn
    found = module.attend(x, h, None, None, future(4), None, False, False, None)[0]
    torch.testing.assert_close(found, by_equation(module, x, h)[0], rtol=1e-4, atol=1e-5)


# Decoding ----------------------------------------------------------------------------------------------------------


def step(module: Any, x: Tensor, h: Tensor, pads: Tensor | None, state: State) -> Tensor:
    return module.attend(x, h, None, pads, None, state, False, False, None)[0]


@torch.no_grad()
@pytest.mark.parametrize("part", PARTS)
@given(targets=lengths_of_a_batch)
def test_step_by_step_is_the_whole(part: str, targets: list[int]) -> None:
    module, state = attention(part), State()
    x, h, pads = torch.randn(max(targets), len(targets), C), torch.randn(4, len(targets), C), by_hand.pads_of(targets)
    steps = [step(module, x[t : t + 1], h, None if pads is None else pads[:, t : t + 1], state) for t in range(len(x))]
    expected = by_equation(module, x, h, pads)[0]
    torch.testing.assert_close(words_of(torch.cat(steps), pads), words_of(expected, pads), rtol=1e-4, atol=1e-5)


@torch.no_grad()
@given(chunks=st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_an_average_takes_several_steps_at_once(chunks: list[int]) -> None:
    module, state = attention("matt_aan"), State()
    x, h = torch.randn(sum(chunks), 2, C), torch.randn(4, 2, C)
    found = torch.cat([step(module, part, h, None, state) for part in x.split(chunks)])
    torch.testing.assert_close(found, by_equation(module, x, h)[0], rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("part", PARTS)
@given(order=st.lists(st.integers(0, 3), min_size=1, max_size=6), before=st.integers(1, 3), after=st.integers(1, 3))
def test_the_target_s_state_follows_the_beams(part: str, order: list[int], before: int, after: int) -> None:
    """Beams of one sentence: whether or not the batch shrinks, each goes on from the one it came from."""
    module, state = attention(part), State()
    prefix, rest, h = torch.randn(before, 4, C), torch.randn(after, len(order), C), torch.randn(3, 1, C)
    for t in range(before):
        step(module, prefix[t : t + 1], h.expand(-1, 4, -1), None, state)
    for one in module.modules():  # as fairseq looks for it
        if hasattr(one, "reorder_incremental_state"):
            one.reorder_incremental_state(state, torch.tensor(order))
    sources = h.expand(-1, len(order), -1)
    found = torch.cat([step(module, rest[t : t + 1], sources, None, state) for t in range(after)])
    expected = by_equation(module, torch.cat([prefix[:, order], rest]), sources)[0][before:]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


# Parameters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "inner"),
    [("matt_self", {f"self_attn.{one}_proj" for one in ("q", "k", "v", "out")}), ("matt_aan", {"self_attn.gate"})],
)
def test_nothing_is_shared_and_the_cross_attention_keeps_its_names(part: str, inner: set[str]) -> None:
    model = tiny(f"dsinit_{part}_transformer")
    for layer in model.decoder.layers:
        tensors = dict(layer.encoder_attn.named_parameters(remove_duplicate=False))
        maps = {"q_proj", "k_proj", "v_proj", "out_proj"} | inner
        assert tensors.keys() == {f"{one}.{kind}" for one in maps for kind in ("weight", "bias")}
        assert len({tensor.data_ptr() for tensor in tensors.values()}) == len(tensors)


@settings(max_examples=8)
@given(heads=st.integers(1, 3), ffn=st.integers(1, 40), layers=st.tuples(st.integers(1, 3), st.integers(1, 4)))
def test_a_layer_saves_a_layer_norm_and_with_a_gate_2_d_more(heads: int, ffn: int, layers: tuple[int, int]) -> None:
    d = 8 * heads
    sizes: dict[str, Any] = {"encoder_layers": layers[0], "decoder_layers": layers[1]}
    for stack in ("encoder", "decoder"):
        sizes[f"{stack}_attention_heads"] = heads
        sizes[f"{stack}_embed_dim"], sizes[f"{stack}_ffn_embed_dim"] = d, ffn
    plain = count("ds_init_transformer", **sizes)
    assert plain - count("dsinit_matt_self_transformer", **sizes) == layers[1] * 2 * d
    assert plain - count("dsinit_matt_aan_transformer", **sizes) == layers[1] * 4 * d


@pytest.mark.parametrize("part", PARTS)
def test_dropout_of_attention_touches_softmax_weights_alone(part: str) -> None:
    model = tiny(f"dsinit_{part}_transformer", attention_dropout=0.9, dropout=0.0).train()
    module = model.decoder.layers[0].encoder_attn
    assert {one.dropout_module.p for one in module.modules() if isinstance(one, Attention)} == {0.9}
    nn.init.zeros_(module.out_proj.weight)  # leaves the attention to the target
    x, h = torch.randn(6, 2, C), torch.randn(5, 2, C)
    found = [module.attend(x, h, None, None, future(6), None, False, False, None)[0] for _ in range(2)]
    assert torch.equal(*found) == (part == "matt_aan")


# Refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["matt", *PARTS])
def test_without_cross_attention_it_is_refused(part: str) -> None:
    with pytest.raises(UserError) as refused:
        tiny("deep_transformer", attention=part, no_cross_attention=True)
    assert refused.value.problems == (
        f"--attention {part} is part of the cross-attention: it cannot be combined with --no-cross-attention",
    )


@pytest.mark.parametrize("part", PARTS)
def test_the_encoder_s_choice_changes_nothing(part: str) -> None:
    stock, encoder_alone = tiny("post_ln_transformer"), tiny("post_ln_transformer", attention=f"{part},softmax")
    assert encoder_alone.state_dict().keys() == stock.state_dict().keys()
    assert all(torch.equal(value, encoder_alone.state_dict()[name]) for name, value in stock.state_dict().items())
