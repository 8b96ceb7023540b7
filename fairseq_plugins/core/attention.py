"""Attention: which attention sub-layers a layer has, and how they attend.

Every attention has the signature of :meth:`Attention.attend`, so that the code of a layer does not depend on it.

Legend: T target time, S source time, B batch, C width, H heads, D width of a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.linear_maps import MapWith, call_maps
from fairseq_plugins.core.method import Axis, NewParameter, Site, Stack, part
from fairseq_plugins.core.norm import layer_norm_parameters, norm_module

# cuDNN makes a plan for each new shape of a batch, and its backward pass adds up in another order each time.
torch.backends.cuda.enable_cudnn_sdp(False)

Attended = tuple[Tensor, Tensor | None, Tensor | None]
"""Output ``(T, B, C)``; weights ``(B, T, S)`` or ``(H, B, T, S)`` or None; the logits for the layer above."""


class AttendOptions(NamedTuple):
    """Arguments of :meth:`Attention.attend` after queries and keys.

    Attributes:
        key_padding_mask: ``(B, S)``, true for pads among the keys.
        query_padding_mask: ``(B, T)``, true for pads among the queries; for attentions that use it.
        future_mask: ``(T, T)``, minus infinity above the diagonal; None for whole-sequence attention.
        incremental_state: fairseq's decoding cache, or None.
        need_weights: also return the weights, averaged over the heads.
        need_head_weights: return the weights of each head instead.
        prev_logits: attention logits of the layer below, for attentions that use them.
    """

    key_padding_mask: Tensor | None = None
    query_padding_mask: Tensor | None = None
    future_mask: Tensor | None = None
    incremental_state: dict[str, dict[str, Tensor | None]] | None = None
    need_weights: bool = False
    need_head_weights: bool = False
    prev_logits: Tensor | None = None


class Attention(MultiheadAttention):
    """Stock softmax attention with the package's signature. Keeps ``q_proj, k_proj, v_proj, out_proj``.

    The constructor takes the arguments of :class:`fairseq.modules.MultiheadAttention`.
    """

    # Gain of the Xavier initialisation of the q, k and v maps. Before 2019-10 fairseq drew them as one
    # (3C, C) matrix, whose Xavier bound is 1/sqrt(2) of that of a (C, C) matrix; the papers' numbers rest on it.
    xavier_input_gain = 1 / math.sqrt(2)

    # For a search, which has its own form of a step of `forward`. A subclass with another `attend` states one of the
    # two, or none: then the search treats it as any module of fairseq, and holds the source once a hypothesis.
    attends_by_forward = False
    """Whether another ``attend`` reads and writes the decoding cache through ``forward`` alone."""
    beams_share_source = False
    """Whether keys of N sentences serve the queries of N * W hypotheses, W to a sentence and side by side."""

    def attend(self, query: Tensor, key: Tensor | None, *args: Any, **kwargs: Any) -> Attended:
        """Attend from ``query`` ``(T, B, C)`` to keys and values ``key`` ``(S, B, C)`` with :class:`AttendOptions`."""
        given, static_keys = AttendOptions(*args, **kwargs), self.encoder_decoder_attention
        output, weights = self.forward(
            query,
            key,
            key,
            key_padding_mask=given.key_padding_mask,
            incremental_state=given.incremental_state,
            need_weights=given.need_weights,
            static_kv=static_keys,
            attn_mask=None if static_keys else given.future_mask,
            need_head_weights=given.need_head_weights,
        )
        return output, weights, given.prev_logits


class ThreeMapsAttention(Attention):
    """An attention whose q, k and v are drawn as three matrices, Xavier gain 1, under every base initialisation."""

    xavier_input_gain = 1.0

    def reset_parameters(self) -> None:
        """Draw stock's weights, except those of q, k and v."""
        super().reset_parameters()
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(projection.weight, gain=self.xavier_input_gain)


class NormedHeads(MapWith):
    """A linear map whose result is normalised in each head: norm(W x + b), W ``(C, in)``, the norm over D."""

    norm: nn.Module

    def __init__(self, linear: nn.Linear, norm: nn.Module, heads: int) -> None:
        super().__init__(linear, "norm", norm, before=False)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(T, B, in)`` to ``(T, B, C)``."""
        mapped = F.linear(x, self.weight, self.bias)
        normed: Tensor = self.norm(mapped.view(*mapped.shape[:-1], self.heads, -1))
        return normed.flatten(-2)


def plan_with_normed_heads(
    names: tuple[str, ...], design: StackDesign, make: Callable[[str], nn.Module] | None = None
) -> AttentionPlan:
    """Return a plan whose attentions normalise each head of some maps. Caches hold normalised heads.

    Args:
        names: the maps with a norm, among ``q_proj``, ``k_proj`` and ``v_proj``.
        design: the stack's design.
        make: returns the norm for a name, over ``(..., head_dim)``; default: the norm module of the stack.
    """

    def build(site: Site, *arguments: Any, **options: Any) -> nn.Module:
        attention = Attention(*arguments, **options)
        for name in names:
            norm = make(name) if make else norm_module(design, site)(attention.head_dim)
            setattr(attention, name, NormedHeads(getattr(attention, name), norm, attention.num_heads))
        call_maps(attention)
        return attention

    of_self, cross = partial(build, Site.SELF), partial(build, Site.CROSS)
    return AttentionPlan(encoder_self=of_self, decoder_self=of_self, cross=cross)


def head_norms(*names: str) -> tuple[NewParameter, ...]:
    """Declare the LayerNorms of the heads of the maps ``names``, for ``Part.parameters``."""
    maps = (f"{site.value}.{name}.norm" for site in (Site.SELF, Site.CROSS) for name in names)
    return layer_norm_parameters(*maps, shape="(C/H)")


class AttentionPlan(NamedTuple):
    """Factories of the attention sub-layers of one layer; ``decoder_self=None`` means that it does not exist.

    Each is called with the arguments of :class:`fairseq.modules.MultiheadAttention`: width, heads and keywords. The
    module needs :meth:`Attention.attend`, ``num_heads`` and ``head_dim``; it need not be an :class:`Attention`.
    """

    encoder_self: Callable[..., nn.Module] = Attention
    decoder_self: Callable[..., nn.Module] | None = Attention
    cross: Callable[..., nn.Module] = Attention


def of_decoders(design: StackDesign, config: Any) -> list[str]:
    """``Part.conflicts`` of parts that change a decoder alone: for an encoder, they are chosen with the decoder's."""
    name = design.choice(Axis.ATTENTION)
    if design.stack is Stack.DECODER or str(config.attention).rpartition(",")[2].strip() == name:
        return []
    return [f"--attention {config.attention}: {name} is an attention of decoders, and has no effect in the encoder"]


def needs_cross_attention(design: StackDesign, config: Any) -> list[str]:
    """``Part.conflicts`` of parts that change the cross-attention. In an encoder they have no effect."""
    if design.stack is Stack.ENCODER or not config.no_cross_attention:
        return of_decoders(design, config)
    lives = f"--attention {design.choice(Axis.ATTENTION)} is part of the cross-attention"
    return [f"{lives}, which language models and --no-cross-attention lack: use --attention softmax"]


part(Axis.ATTENTION, "softmax", summary="stock multi-head softmax attention")(lambda depth, design: AttentionPlan())
