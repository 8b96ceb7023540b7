"""Whole stacks computed from a sub-layer equation in plain torch, to compare outputs and gradients with a model's.

Nothing here calls a forward method of the package or of fairseq, except for the embedding of the decoder. An
:class:`Equation` says what a sub-layer computes, reading what it needs from :class:`At`.

Legend: T time, S source time, B batch, C width, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.core.language_model import DeepTransformerLanguageModel
from fairseq_plugins.core.method import Site
from fairseq_plugins.core.sub_layers import NORM_OF, sites_of
from tests.models import TINY, methods_of, perturb, tiny
from tests.rounding import assert_same_to_rounding

Map = Callable[[Tensor], Tensor]
OnMap = Callable[[Any, Tensor], Tensor]
# Models are in float64, but fairseq takes the softmax of an attention in float32 where it computes it by itself. Its
# rounding, 6e-8 of a weight, is spread over a handful of sub-layers; gradients add up more terms.
SHARE = 1e-6


def ln(x: Tensor, norm: Any, epsilon: float = 1e-5) -> Tensor:
    """Ba et al. 2016, equation 4, with the gain and the bias of ``norm``."""
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(dim=-1, keepdim=True) + epsilon) * norm.weight + norm.bias


def rms(x: Tensor, norm: Any) -> Tensor:
    """Zhang and Sennrich 2019, equation 4."""
    return x / torch.sqrt((x * x).sum(dim=-1, keepdim=True) / x.size(-1) + 1e-5) * norm.weight


def same(x: Tensor) -> Tensor:
    return x


def kept(map_: Any, heads: Tensor) -> Tensor:
    return heads


def linear(x: Tensor, module: Any) -> Tensor:
    """W x + b, or W x."""
    product: Tensor = x @ module.weight.t()
    return product if module.bias is None else product + module.bias


def attention(
    module: Any, x: Tensor, keys: Tensor, causal: bool, inner: Map = same, on_heads: OnMap = kept, on_logits: Map = same
) -> Tensor:
    """Vaswani et al. 2017, equation 1.

    ``inner`` is applied before the last map, ``on_heads`` to q, k and v, ``(B, H, T, C / H)``, with their map, and
    ``on_logits`` to the logits, ``(B, H, T, S)``, before the mask.
    """

    def heads(x: Tensor, map_: Any) -> Tensor:
        return on_heads(map_, linear(x, map_).view(*x.shape[:2], module.num_heads, -1).permute(1, 2, 0, 3))

    q, k, v = heads(x, module.q_proj), heads(keys, module.k_proj), heads(keys, module.v_proj)
    logits = on_logits(q @ k.transpose(-1, -2) / math.sqrt(q.size(-1)))
    if causal:
        logits = logits.masked_fill(torch.ones(logits.shape[-2:]).triu(1).bool(), float("-inf"))
    context = (torch.softmax(logits, dim=-1) @ v).permute(2, 0, 1, 3).flatten(2)
    return linear(inner(context), module.out_proj)


def attend(at: At, module: Any, query: Tensor, source: Tensor, **changes: Any) -> Tensor:
    """Softmax attention, in the decoder to the target so far."""
    return attention(module, query, source, at.causal, **changes)


def feed_forward(layer: Any, x: Tensor, inner: Map = same) -> Tensor:
    """Vaswani et al. 2017, equation 2."""
    return linear(inner(linear(x, layer.fc1).clamp(min=0)), layer.fc2)


def newest(stack: Any, states: list[Tensor]) -> Tensor:
    return states[-1]


@dataclass(frozen=True)
class Equation:
    """The output of a stack.

    Attributes:
        sub_layer: the stream above a sub-layer, from that below it.
        top: what is done on top, from the output of the last layer.
        mix: the input of the next layer, from a stack and its states so far.
        solve: the next state, from a layer as a function and its input.
        attend: an attention, in place of softmax attention.
        feed: a feed-forward network, from its layer.
    """

    sub_layer: Callable[[At, Tensor], Tensor]
    top: Callable[[At, Tensor], Tensor] = lambda at, x: x
    mix: Callable[[Any, list[Tensor]], Tensor] = newest
    solve: Callable[[At, Map, Tensor], Tensor] = lambda at, layer, x: layer(x)
    attend: Callable[..., Tensor] = attend
    feed: Callable[..., Tensor] = feed_forward


@dataclass
class At:
    """A place in a stack that is being computed, as an equation reads it.

    Attributes:
        stack: the encoder or the decoder.
        equation: what it computes.
        start: input of the stack, ``(T, B, C)``.
        source: output of the encoder, if there is one.
        layer, depth, site: where the sub-layer is; depth counts from 1.
        layer_input: input of the layer.
        branches: outputs of the branches so far.
        corrected: states that a solver keeps.
        logits: of the attentions so far, by site; or what else crosses layers in the place of logits.
        streams: where there are several.
    """

    stack: Any
    equation: Equation
    start: Tensor
    source: Tensor | None
    layer: Any = None
    depth: int = 0
    site: Site = Site.SELF
    layer_input: Tensor = field(init=False)
    branches: list[Tensor] = field(default_factory=list)
    logits: dict[Site, Tensor] = field(default_factory=dict)
    corrected: list[Tensor] = field(default_factory=list)
    streams: list[Tensor] = field(default_factory=list)

    @property
    def in_encoder(self) -> bool:
        return bool(self.stack.design.stack.value == "encoder")

    @property
    def causal(self) -> bool:
        """Whether a query sees only what is not behind it."""
        return not self.in_encoder and self.site is Site.SELF

    @property
    def layers(self) -> int:
        return len(self.stack.layers)

    @property
    def sub_layers(self) -> int:
        return self.layers * len(sites_of(self.layer))

    @property
    def residual(self) -> Any:
        return getattr(self.layer, f"{self.site.value}_residual")

    @property
    def first_norm(self) -> Any:
        """The norm with stock's name."""
        return getattr(self.layer, NORM_OF[self.site])

    def norm(self, x: Tensor) -> Tensor:
        """LayerNorm of that name, if there is one."""
        return x if self.first_norm is None else ln(x, self.first_norm)

    def later_norm(self, place: str, x: Tensor) -> Tensor:
        return ln(x, getattr(self.layer, f"{self.site.value}_{place}_norm"))

    def branch(self, x: Tensor, **changes: Any) -> Tensor:
        """Attention or feed-forward of ``x``; ``changes`` as in :func:`attention`."""
        if self.site is Site.FFN:
            output = self.equation.feed(self.layer, x, **changes)
        else:
            source = self.source if self.site is Site.CROSS else x
            output = self.equation.attend(self, getattr(self.layer, self.site.value), x, source, **changes)
        self.branches.append(output)
        return output


def run(stack: Any, start: Tensor, source: Tensor | None, equation: Equation) -> Tensor:
    """The output of a stack, ``(T, B, C)``."""
    at, states = At(stack, equation, start, source), [start]

    def evaluate(x: Tensor) -> Tensor:
        at.layer_input = x
        for site in sites_of(at.layer):
            at.site = site
            x = equation.sub_layer(at, x)
        return x

    for depth, layer in enumerate(stack.layers, start=1):
        at.depth, at.layer = depth, layer
        states.append(equation.solve(at, evaluate, equation.mix(stack, states)))
    return equation.top(at, equation.mix(stack, states))


def stirred(arch: str, **values: Any) -> Any:
    """A tiny model in float64, nothing at a special value: every norm has a gain and a bias of its own."""
    model = tiny(arch, **values).double()
    perturb(model)
    for name, buffer in model.named_buffers():
        if name.endswith("omega_profiled"):
            buffer.uniform_(1, 2)
    return model.eval()


def assert_same_gradients(output: Tensor, expected: Tensor, parameters: dict[str, nn.Parameter]) -> None:
    """Compare two tensors, and the gradients of a random projection of either for every parameter."""
    assert_same_to_rounding(output, expected, SHARE)
    weights = torch.randn(output.shape, dtype=output.dtype, generator=torch.Generator().manual_seed(4))
    sides = [
        torch.autograd.grad((weights * side).sum(), list(parameters.values()), allow_unused=True)
        for side in (output, expected)
    ]
    compared = 0
    for name, mine, theirs in zip(parameters, *sides, strict=True):
        assert (mine is None) == (theirs is None), name
        if mine is not None:
            assert_same_to_rounding(mine, theirs, 10 * SHARE, msg=name)
            compared += 1
    assert compared > 10


def assert_is(arch: str, equation: Equation, **values: Any) -> None:
    """Compare both stacks of a translation model with an equation, and a language model where the method has one."""
    model = stirred(arch, **values)
    generator = torch.Generator().manual_seed(2)
    source = torch.randn(6, 2, TINY["encoder_embed_dim"], dtype=torch.float64, generator=generator)
    previous = torch.randint(4, 40, (2, 5), generator=generator)
    expected = run(model.encoder, source, None, equation)
    output = model.encoder.run_layers(source, None, [], False)
    assert_same_gradients(output, expected, dict(model.encoder.named_parameters()))
    encoded = {"encoder_out": [source], "encoder_padding_mask": []}
    decoders = [(model.decoder, source, encoded)]
    if arch.removesuffix("_transformer") in methods_of(DeepTransformerLanguageModel):
        of_decoder = {name: value.split(",")[-1] if isinstance(value, str) else value for name, value in values.items()}
        decoders.append((stirred(f"{arch}_lm", **of_decoder).decoder, None, None))
    for decoder, keys, given in decoders:
        expected = run(decoder, decoder.embed(previous, None), keys, equation)
        output = decoder.extract_features(previous, given)[0].transpose(0, 1)
        assert_same_gradients(output, expected, dict(decoder.named_parameters()))
