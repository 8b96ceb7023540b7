"""Whole stacks computed from a sub-layer equation in plain torch, to compare outputs and gradients with a model's.

Nothing here calls a forward method of the package or of fairseq, except for the embedding of the decoder. A test gives
the equation as ``sub_layer(layer, site, depth, branch, x)``: ``branch(z, inner)`` is attention or feed-forward of z,
with ``inner`` applied before its last map and ``on_heads`` to the heads of an attention.

Legend: T time, S source time, B batch, C width, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.core.method import Site
from tests.models import TINY, perturb, tiny
from tests.rounding import assert_same_to_rounding

Map = Callable[[Tensor], Tensor]
OnHeads = Callable[[Any, Tensor], Tensor]
Branch = Callable[..., Tensor]
# Models are in float64, but fairseq takes the softmax of an attention in float32 where it computes it by itself. Its
# rounding, 6e-8 of a weight, is spread over a handful of sub-layers; gradients add up more terms.
SHARE = 1e-6
Mix = Callable[[Any, list[Tensor]], Tensor]
SubLayer = Callable[[Any, Site, int, Branch, Tensor], Tensor]
FIRST_NORM = {
    Site.SELF: "self_attn_layer_norm",
    Site.CROSS: "encoder_attn_layer_norm",
    Site.FFN: "final_layer_norm",
}


def ln(x: Tensor, norm: Any, epsilon: float = 1e-5) -> Tensor:
    """Ba et al. 2016, equation 4, with the gain and the bias of ``norm``."""
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(dim=-1, keepdim=True) + epsilon) * norm.weight + norm.bias


def same(x: Tensor) -> Tensor:
    """No norm."""
    return x


def untouched(map_: Any, heads: Tensor) -> Tensor:
    """No norm on the heads."""
    return heads


def first_norm(layer: Any, site: Site) -> Any:
    """The norm with stock's name."""
    return getattr(layer, FIRST_NORM[site])


def linear(x: Tensor, module: Any) -> Tensor:
    """W x + b."""
    return x @ module.weight.t() + module.bias


def maps(module: Any) -> tuple[Any, Any, Any]:
    """The maps of queries, keys and values."""
    return module.q_proj, module.k_proj, module.v_proj


def attention(
    module: Any, query: Tensor, source: Tensor, causal: bool, inner: Map = same, on_heads: OnHeads = untouched
) -> Tensor:
    """Vaswani et al. 2017, equation 1; ``on_heads`` is applied to q, k and v, ``(B, H, T, C / H)``, with their map."""

    def heads(x: Tensor, map_: Any) -> Tensor:
        return on_heads(map_, linear(x, map_).view(*x.shape[:2], module.num_heads, -1).permute(1, 2, 0, 3))

    q, k, v = (heads(z, one) for z, one in zip((query, source, source), maps(module), strict=True))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), float("-inf"))
    context = (torch.softmax(scores, dim=-1) @ v).permute(2, 0, 1, 3).flatten(2)
    return linear(inner(context), module.out_proj)


def feed_forward(layer: Any, x: Tensor, inner: Map = same) -> Tensor:
    """Vaswani et al. 2017, equation 2."""
    return linear(inner(linear(x, layer.fc1).clamp(min=0)), layer.fc2)


def run(stack: Any, x: Tensor, source: Tensor | None, sub_layer: SubLayer, causal: bool, mix: Mix) -> Tensor:
    """The last mixture of the states, ``(T, B, C)``."""
    states = [x]
    for depth, layer in enumerate(stack.layers, start=1):

        def attend(z: Tensor, inner: Map = same, on_heads: OnHeads = untouched, layer: Any = layer) -> Tensor:
            return attention(layer.self_attn, z, z, causal, inner, on_heads)

        def attend_source(z: Tensor, inner: Map = same, on_heads: OnHeads = untouched, layer: Any = layer) -> Tensor:
            assert source is not None
            return attention(layer.encoder_attn, z, source, False, inner, on_heads)

        def feed(z: Tensor, inner: Map = same, layer: Any = layer) -> Tensor:
            return feed_forward(layer, z, inner)

        x = sub_layer(layer, Site.SELF, depth, attend, x)
        if source is not None:
            x = sub_layer(layer, Site.CROSS, depth, attend_source, x)
        states.append(sub_layer(layer, Site.FFN, depth, feed, x))
        x = mix(stack, states)
    return x


def newest(stack: Any, states: list[Tensor]) -> Tensor:
    """The output of the layer below."""
    return states[-1]


def stirred(arch: str, **values: Any) -> Any:
    """A tiny model in float64, nothing at a special value: every norm has a gain and a bias of its own."""
    model = tiny(arch, **values).double()
    perturb(model)
    return model.eval()


def assert_same_gradients(found: Tensor, expected: Tensor, parameters: dict[str, nn.Parameter]) -> None:
    """Compare two tensors, and the gradients of a random projection of either for every parameter."""
    assert_same_to_rounding(found, expected, SHARE)
    weights = torch.randn(found.shape, dtype=found.dtype, generator=torch.Generator().manual_seed(4))
    sides = [
        torch.autograd.grad((weights * side).sum(), list(parameters.values()), allow_unused=True)
        for side in (found, expected)
    ]
    compared = 0
    for name, mine, theirs in zip(parameters, *sides, strict=True):
        assert (mine is None) == (theirs is None), name
        if mine is not None:
            assert_same_to_rounding(mine, theirs, 10 * SHARE, msg=name)
            compared += 1
    assert compared > 10


def assert_is(
    arch: str,
    make: Callable[[Any], tuple[SubLayer, Callable[[Tensor, Tensor], Tensor]]],
    mix: Mix = newest,
    **values: Any,
) -> None:
    """Compare both stacks of a translation model, and a language model, with an equation.

    Args:
        arch: the architecture; ``arch + "_lm"`` is its language model.
        make: from a stack to its sub-layer equation and to what is done on top, from ``x_0`` and ``x_L``.
        mix: from a stack and its states so far to the input of the next layer.
        values: settings.
    """
    model = stirred(arch, **values)
    generator = torch.Generator().manual_seed(2)
    source = torch.randn(6, 2, TINY["encoder_embed_dim"], dtype=torch.float64, generator=generator)
    previous = torch.randint(4, 40, (2, 5), generator=generator)
    sub_layer, finish = make(model.encoder)
    expected = finish(source, run(model.encoder, source, None, sub_layer, False, mix))
    assert_same_gradients(model.encoder.run_layers(source, None, [], False), expected, trained(model.encoder))
    encoded = {"encoder_out": [source], "encoder_padding_mask": []}
    stacks = [(model.decoder, source, encoded), (stirred(f"{arch}_lm", **halves(values)).decoder, None, None)]
    for decoder, keys, given in stacks:
        sub_layer, finish = make(decoder)
        start = decoder.embed(previous, None)
        expected = finish(start, run(decoder, start, keys, sub_layer, True, mix))
        found = decoder.extract_features(previous, given)[0].transpose(0, 1)
        assert_same_gradients(found, expected, trained(decoder))


def halves(values: dict[str, Any]) -> dict[str, Any]:
    """The settings of a language model: those of the decoder."""
    return {name: value.split(",")[-1] if isinstance(value, str) else value for name, value in values.items()}


def trained(stack: Any) -> dict[str, nn.Parameter]:
    """What is trained, by name."""
    return dict(stack.named_parameters())
