"""RealFormer: its layers against a computation head by head, its three chains, and what is carried along them.

Legend: T target time, S source time, B batch, C width, H heads, D width of a head.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.building import Batch, batch, logits, tiny
from tests.rounding import assert_same_to_rounding

ARCH = "realformer_transformer"
T, S, B, C, H, D = 4, 5, 2, 16, 2, 8
CHAINS = ("encoder", "decoder self", "cross")


def with_biases(model: nn.Module) -> nn.Module:
    """In eval mode, with attention biases that are not zero."""
    for name, parameter in model.named_parameters():
        if "_proj.bias" in name:
            nn.init.normal_(parameter)
    return model.eval()


def twins(**values: Any) -> tuple[nn.Module, nn.Module]:
    """RealFormer and Post-LN with the same weights."""
    model = with_biases(tiny(ARCH, **values))
    post_ln = tiny("post_ln_transformer", **{k: v for k, v in values.items() if not k.startswith("realformer")}).eval()
    post_ln.load_state_dict(model.state_dict(), strict=True)
    return model, post_ln


# Against Post-LN, whose softmax is always float32 ------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_without_queries_it_is_post_ln_without_queries(mode: str) -> None:
    """All logits are zero, in every layer."""
    model, post_ln = (one.double() for one in twins(realformer_logits=mode))
    assert (logits(model, batch()) - logits(post_ln, batch())).abs().max() > 1e-3
    for one in (model, post_ln):
        for name, parameter in one.named_parameters():
            if "q_proj" in name:
                parameter.zero_()
    torch.testing.assert_close(logits(model, batch()), logits(post_ln, batch()), rtol=0, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_one_layer_is_post_ln(mode: str, train: bool) -> None:
    model, post_ln = twins(realformer_logits=mode, encoder_layers=1, decoder_layers=1, dropout=0.2)
    outputs = [logits(one.double().train(train), batch(), seed=5) for one in (model, post_ln)]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-6)


@torch.no_grad()
def test_gradients_of_one_layer_are_those_of_post_ln() -> None:
    models = twins(encoder_layers=1, decoder_layers=1)
    for one in models:
        with torch.enable_grad():
            logits(one.double(), batch()).square().sum().backward()
    expected = dict(models[1].named_parameters())
    for name, parameter in models[0].named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=1e-5, atol=1e-5)


# The equation ------------------------------------------------------------------------------------------------------


def own_logits(module: nn.Module, x: Tensor, h: Tensor) -> Tensor:
    """Q K^T / sqrt(D), ``(B, H, T, S)``, one head at a time."""
    q, k = module.q_proj(x).transpose(0, 1), module.k_proj(h).transpose(0, 1)
    heads = [slice(head * D, (head + 1) * D) for head in range(H)]
    return torch.stack([q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(D) for part in heads], dim=1)


def by_hand(module: nn.Module, x: Tensor, h: Tensor, total: Tensor, allowed: Tensor) -> Tensor:
    """softmax of ``total``, ``(B, H, T, S)``, over the ``allowed`` keys, ``(B, T, S)``; values and output map."""
    v = module.v_proj(h).transpose(0, 1)
    context = torch.zeros(x.size(1), x.size(0), C, dtype=x.dtype)
    for b in range(x.size(1)):
        for head in range(H):
            part = slice(head * D, (head + 1) * D)
            for t in range(x.size(0)):
                keys = allowed[b, t].nonzero().flatten()
                exponentials = total[b, head, t, keys].exp()
                context[b, t, part] = (exponentials / exponentials.sum()) @ v[b, keys][:, part]
    return module.out_proj(context).transpose(0, 1)


def feed_forward(layer: nn.Module, x: Tensor) -> Tensor:
    return layer.final_layer_norm(x + layer.fc2(torch.relu(layer.fc1(x))))


def pads(length: int, left: bool) -> Tensor:
    """The second sentence is two shorter than the first."""
    result = torch.zeros(B, length, dtype=torch.bool)
    result[1, (slice(0, 2) if left else slice(length - 2, length))] = True
    return result


@torch.no_grad()
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_two_encoder_layers_by_hand(mode: str, padded: bool) -> None:
    first, second = with_biases(tiny(ARCH, encoder_layers=2, realformer_logits=mode)).double().encoder.layers
    x = 2 * torch.randn(S, B, C, dtype=torch.double)
    mask = pads(S, left=True) if padded else None
    allowed = torch.ones(B, S, S, dtype=torch.bool) if mask is None else ~mask.unsqueeze(1).expand(B, S, S)

    below = own_logits(first.self_attn, x, x)
    middle = feed_forward(first, first.self_attn_layer_norm(x + by_hand(first.self_attn, x, x, below, allowed)))
    total = below + own_logits(second.self_attn, middle, middle)
    logits = total / 2 if mode == "mean" else total
    branch = by_hand(second.self_attn, middle, middle, logits, allowed)
    expected = feed_forward(second, second.self_attn_layer_norm(middle + branch))

    found, scores, _ = first(x, mask)
    torch.testing.assert_close(found, middle, rtol=0, atol=1e-12)
    torch.testing.assert_close(scores.view(below.size()), below, rtol=0, atol=1e-12)
    found, scores, _ = second(found, mask, scores)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    # The sum is carried in either case, and no mask is in it.
    torch.testing.assert_close(scores.view(total.size()), total, rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_two_decoder_layers_by_hand(mode: str, padded: bool) -> None:
    layers = with_biases(tiny(ARCH, realformer_logits=mode)).double().decoder.layers
    x, h = 2 * torch.randn(T, B, C, dtype=torch.double), torch.randn(S, B, C, dtype=torch.double)
    future = torch.full((T, T), float("-inf"), dtype=torch.double).triu(1)
    target_pads, source_pads = (pads(T, left=False), pads(S, left=True)) if padded else (None, None)
    so_far = torch.ones(T, T).tril().bool().expand(B, T, T)
    source = torch.ones(B, T, S, dtype=torch.bool)
    if padded:
        so_far = so_far & ~target_pads.unsqueeze(1)
        source = source & ~source_pads.unsqueeze(1)

    state, self_total, cross_total = x, torch.zeros(()), torch.zeros(())
    found, self_scores, cross_scores = x, None, None
    for depth, layer in enumerate(layers, start=1):
        terms = depth if mode == "mean" else 1
        self_total = self_total + own_logits(layer.self_attn, state, state)
        branch = by_hand(layer.self_attn, state, state, self_total / terms, so_far)
        state = layer.self_attn_layer_norm(state + branch)
        cross_total = cross_total + own_logits(layer.encoder_attn, state, h)
        branch = by_hand(layer.encoder_attn, state, h, cross_total / terms, source)
        state = feed_forward(layer, layer.encoder_attn_layer_norm(state + branch))
        arguments = (found, h, source_pads, None, future, target_pads, True, self_scores, cross_scores)
        found, weights, self_scores, cross_scores, _ = layer(*arguments)
        torch.testing.assert_close(found, state, rtol=0, atol=1e-12)
        torch.testing.assert_close(self_scores.view(B, H, T, T), self_total, rtol=0, atol=1e-12)
        torch.testing.assert_close(cross_scores.view(B, H, T, S), cross_total, rtol=0, atol=1e-12)
        masked = (cross_total / terms).masked_fill(~source.unsqueeze(1), float("-inf"))
        torch.testing.assert_close(weights, masked.softmax(dim=-1).transpose(0, 1), rtol=0, atol=1e-12)


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


# The chains --------------------------------------------------------------------------------------------------------


def chains_of(model: nn.Module, inputs: Batch, shifted: str | None = None, by: Any = 0.0) -> dict[str, list[Tensor]]:
    """Scores that each layer hands up, of all chains, and the logits; the first layer's of one chain can be shifted."""
    found: dict[str, list[Tensor]] = {chain: [] for chain in CHAINS}
    places = {"encoder": (model.encoder, 1), "decoder self": (model.decoder, 2), "cross": (model.decoder, 3)}
    handles = []
    for chain, (stack, position) in places.items():
        for number, layer in enumerate(stack.layers):

            def note(
                _: Any, __: Any, result: Any, chain: str = chain, at: int = position, first: bool = number == 0
            ) -> Any:
                result = list(result)
                if first and chain == shifted:
                    result[at] = result[at] + by
                found[chain].append(result[at])
                return tuple(result)

            handles.append(layer.register_forward_hook(note))
    with torch.no_grad():
        found["logits"] = [logits(model, inputs)]
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.parametrize("shifted", CHAINS)
def test_the_chains_are_independent(shifted: str) -> None:
    """A constant on all logits leaves every softmax as it is, so it can be followed: along one chain and no other."""
    model = with_biases(tiny(ARCH)).double()
    before, after = chains_of(model, batch()), chains_of(model, batch(), shifted, 3.0)
    for chain in CHAINS:
        assert len(before[chain]) == (3 if chain == "encoder" else 2)
        for mine, theirs in zip(after[chain], before[chain], strict=True):
            expected = theirs + 3.0 if chain == shifted else theirs
            torch.testing.assert_close(mine, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(after["logits"][0], before["logits"][0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("shifted", CHAINS)
def test_every_chain_is_used(shifted: str) -> None:
    model = with_biases(tiny(ARCH)).double()
    before = chains_of(model, batch())
    after = chains_of(model, batch(), shifted, torch.randn(before[shifted][0].shape, dtype=torch.double))
    assert (after["logits"][0] - before["logits"][0]).abs().max() > 1e-3


def test_a_chain_of_one_stack_alone() -> None:
    model = with_biases(tiny("post_ln_transformer", attention="realformer,softmax"))
    scores = []
    handles = [
        layer.register_forward_hook(lambda _, __, result: scores.append(result[-2]))
        for layer in (*model.encoder.layers, *model.decoder.layers)
    ]
    logits(model, batch())
    assert [one is None for one in scores] == 3 * [False] + 2 * [True]
    assert len(handles) == 5


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float32, torch.float32),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_what_is_carried_is_finite_under_masks_and_float32(dtype: torch.dtype, expected: torch.dtype) -> None:
    """Source pads on the left, target pads on the right and the future are all masked."""
    inputs = batch()
    assert bool(inputs.src_tokens.eq(1).any())
    assert bool(inputs.prev_output_tokens.eq(1).any())
    found = chains_of(with_biases(tiny(ARCH)).to(dtype), inputs)
    for chain in CHAINS:
        for scores in found[chain]:
            assert scores.dtype == expected
            assert bool(scores.isfinite().all())
    assert found["logits"][0].dtype == dtype
    assert bool(found["logits"][0].isfinite().all())


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


def storages_of_size(elements: int, model: nn.Module, inputs: Batch) -> int:
    """How many different tensors of so many elements autograd keeps for the backward pass of the encoder."""
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model.encoder(inputs.src_tokens, inputs.src_lengths)["encoder_out"][0]
    assert output.requires_grad
    of_size = [tensor for tensor in kept if tensor.numel() == elements and tensor.is_floating_point()]
    return len({tensor.untyped_storage().data_ptr() for tensor in of_size})


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_autograd_keeps_no_scores(mode: str) -> None:
    """Of each layer the weights alone, as every attention does that is not fused."""
    inputs = batch(source=11, sentences=3)
    for layers in (2, 5):
        model = tiny(ARCH, encoder_layers=layers, realformer_logits=mode, dropout=0.0).train()
        assert storages_of_size(3 * H * 11 * 11, model, inputs) == layers


@torch.no_grad()
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_step_by_step_is_the_whole_with_the_cache_of_stock(mode: str) -> None:
    models, data = twins(realformer_logits=mode), batch(target=6)
    caches: list[dict[str, dict[str, Tensor]]] = [{}, {}]
    whole = logits(models[0], data)
    for model, cache in zip(models, caches, strict=True):
        encoder_out = model.encoder(data.src_tokens, data.src_lengths)
        for step in range(1, 7):
            found = model.decoder(data.prev_output_tokens[:, :step], encoder_out, incremental_state=cache)[0]
            valid = data.prev_output_tokens[:, step - 1] != 1
            if model is models[0]:
                assert_same_to_rounding(found[valid, 0], whole[valid, step - 1])
    described = [
        [(key, None if value is None else value.shape) for state in cache.values() for key, value in state.items()]
        for cache in caches
    ]
    assert len(described[0]) == 2 * 2 * 3
    assert described[0] == described[1]


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
