"""Two costlier variants of merged attention: a whole attention to the target next to the cross-attention.

The paper's table 3 names them (rows 6 and 7) and prints their sizes; no code was released. Row 6 has 1,024 parameters a
layer fewer than a plain base model, which is one LayerNorm, so both attentions keep all their maps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from fairseq_plugins.core.attention import (
    Attended,
    Attention,
    AttentionPlan,
    Given,
    ThreeMapsAttention,
    needs_cross_attention,
)
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, NewParameter, method, part
from fairseq_plugins.methods.shared.averages import AverageAttention


class JoinedAttention(ThreeMapsAttention):
    """out = inner(x) + cross(x, h): two complete attentions under one residual connection and one LayerNorm.

    The cross-attention keeps its stock names; ``self_attn`` below it is the inner one, which has its own decoding
    state. The authors draw q, k and v of a cross-attention as three matrices.

    Args:
        args, kwargs: those of :class:`fairseq.modules.MultiheadAttention`, for the cross-attention.
        inner: the attention to the target; it has :meth:`Attention.attend`.
    """

    attends_by_forward = True

    def __init__(self, *args: Any, inner: nn.Module, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.self_attn: Any = inner

    def attend(self, query: Tensor, key: Tensor | None, *args: Any, **kwargs: Any) -> Attended:
        """See :meth:`Attention.attend`; the weights are those of the cross-attention."""
        given = Given(*args, **kwargs)
        own = given._replace(key_padding_mask=given.query_padding_mask, need_weights=False, need_head_weights=False)
        target, _, _ = self.self_attn.attend(query, query, *own)
        source, weights, logits = super().attend(query, key, *given)
        return source + target, weights, logits


def joined(inner: Callable[..., nn.Module]) -> AttentionPlan:
    """Plan without self-attention sub-layer; what ``inner(width, heads, dropout)`` builds joins the cross-attention."""

    def cross(width: int, heads: int, dropout: float = 0.0, **others: Any) -> nn.Module:
        return JoinedAttention(width, heads, dropout=dropout, inner=inner(width, heads, dropout), **others)

    return AttentionPlan(decoder_self=None, cross=cross)


@part(
    Axis.ATTENTION,
    "matt_self",
    summary="self-attention and cross-attention side by side in one sub-layer of the decoder",
    parameters=tuple(
        NewParameter(f"encoder_attn.self_attn.{one}_proj.{kind}", shape, "drawn: as of a stock self-attention")
        for one in ("q", "k", "v", "out")
        for kind, shape in (("weight", "(C, C)"), ("bias", "(C)"))
    ),
    conflicts=needs_cross_attention,
    no_fold="stock fairseq never has two attentions in one sub-layer",
)
def build_self(depth: int, design: StackDesign) -> AttentionPlan:
    """Plan a stock self-attention next to the cross-attention."""
    return joined(lambda width, heads, dropout: Attention(width, heads, dropout=dropout, self_attention=True))


@part(
    Axis.ATTENTION,
    "matt_aan",
    summary="gated average attention and cross-attention side by side in one sub-layer of the decoder",
    parameters=(
        NewParameter("encoder_attn.self_attn.gate.weight", "(2C, 2C)", "drawn: Xavier uniform"),
        NewParameter("encoder_attn.self_attn.gate.bias", "(2C)", "0"),
    ),
    conflicts=needs_cross_attention,
    no_fold="stock fairseq has no average attention",
)
def build_average(depth: int, design: StackDesign) -> AttentionPlan:
    """Plan a gated average next to the cross-attention; it has no feed-forward network, and no weights to drop."""
    return joined(lambda width, heads, dropout: AverageAttention(width, heads))


PAPER = "Zhang et al., EMNLP 2019, https://arxiv.org/abs/1908.11365"
NOT_RELEASED = "The paper's table 3 names this model without an equation, and its code was not released. "
WITHOUT_DS_INIT = (
    "The paper trains this sub-layer without DS-Init, as a variant of row 4: `--init keep`. The architecture adds "
    "DS-Init, as in the paper's deep models."
)
method(
    "dsinit_matt_self",
    title="DS-Init + MAtt with self-attention",
    paper=PAPER,
    equation=(
        r"decoder: $`o = \mathrm{LN}(x + \mathrm{SA}(x) + \mathrm{CA}(x, h))`$, then feed-forward (table 3, "
        r"row 6); $`\mathrm{SA}`$ and $`\mathrm{CA}`$ are complete self- and cross-attentions, $`h`$ is the encoder's "
        "output; encoder and initialisation as DS-Init"
    ),
    norm_position="post",
    attention="matt_self",
    init="ds_init",
    departures=(
        NOT_RELEASED + r"The printed 72.3M implies that nothing is shared: a decoder layer has one LayerNorm, "
        r"$`2 d`$ parameters, fewer than DS-Init's. With a shared $`W_o`$ it would be 70.7M.",
        WITHOUT_DS_INIT,
    ),
)
method(
    "dsinit_matt_aan",
    title="DS-Init + MAtt with the original AAN",
    paper=PAPER,
    equation=(
        r"decoder: $`o_t = \mathrm{LN}(x_t + \sigma(i_t) \odot x_t + \sigma(f_t) \odot g_t + "
        r"\mathrm{CA}(x, h)_t)`$, then feed-forward (table 3, row 7); $`g_t`$, $`i_t`$ and $`f_t`$ as in AAN, without "
        r"its feed-forward network; $`\mathrm{CA}`$ is a complete cross-attention; encoder and initialisation as "
        "DS-Init"
    ),
    norm_position="post",
    attention="matt_aan",
    init="ds_init",
    departures=(
        NOT_RELEASED + r"Built from this equation, the base model has 72.30M parameters; the paper prints 72.2M, "
        "which no layout that we tried gives.",
        WITHOUT_DS_INIT,
    ),
)
