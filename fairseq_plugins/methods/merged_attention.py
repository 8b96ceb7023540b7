"""Merged attention (MAtt): a simplified average attention merged with the cross-attention, for decoding speed.

The decoder layer loses its self-attention; the mean of the value vectors so far replaces it (section 6 of the paper).
Two costlier variants have a whole attention to the target next to the cross-attention. Table 3 names them (rows 6 and
7) and prints their sizes; no code was released. Row 6 has 1,024 parameters a layer fewer than a plain base model, which
is one LayerNorm, so both attentions keep all their maps.

Legend: T target time, S source time, N sentences, W hypotheses of each, C width, H heads, D width of a head.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_plugins.core.attention import (
    Attended,
    AttendOptions,
    Attention,
    AttentionPlan,
    ThreeMapsAttention,
    needs_cross_attention,
)
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, NewParameter, Stack, method, part
from fairseq_plugins.methods.shared.averages import AverageAttention, RunningAverage
from fairseq_plugins.methods.shared.cached_keys import by_head, by_position, by_sentence, keys_and_values


class MergedAttention(ThreeMapsAttention):
    """out = (C + A) W_o + b_o, C the cross-attention before its output map, A the mean of x_k W_v + b_v, k <= t.

    W_v, b_v and W_o serve both: the text shares W_o; the released code and the paper's parameter counts show that W_v
    is shared too. The authors draw q, k and v of this sub-layer as three matrices. The decoding state of A is a running
    sum and a count, O(1) in time and memory.
    """

    beams_share_source = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.average = RunningAverage()

    def attend(self, query: Tensor, key: Tensor | None, *args: Any, **kwargs: Any) -> Attended:
        """See :meth:`fairseq_plugins.core.attention.Attention.attend`."""
        given, length = AttendOptions(*args, **kwargs), len(query)
        causal = given.future_mask is not None
        average = self.average(self.v_proj(query), given.query_padding_mask, given.incremental_state, causal)
        keys, values, pads = keys_and_values(self, key, given.key_padding_mask, given.incremental_state)
        queries = by_sentence(self, self.q_proj(query), len(keys))
        allowed: Tensor | None = None
        if pads is not None:
            allowed = torch.logical_not(pads.to(torch.bool)).unsqueeze(1).unsqueeze(1)  # B 1 1 S
        weights: Tensor | None = None
        if given.need_weights:
            logits = torch.matmul(queries * self.scaling, keys.transpose(2, 3)).float()
            if allowed is not None:
                logits = logits.masked_fill(torch.logical_not(allowed), float("-inf"))
            probabilities = F.softmax(logits, dim=-1)  # N H W*T S
            context = torch.matmul(self.dropout_module(probabilities.type_as(values)), values)
            weights = by_head(probabilities, length, given.need_head_weights)
        else:
            rate = float(self.dropout_module.p) if self.training else 0.0
            context = F.scaled_dot_product_attention(queries, keys, values, attn_mask=allowed, dropout_p=rate)
        return self.out_proj(by_position(context, length) + average), weights, given.prev_logits


def conflicts(design: StackDesign, config: Any) -> list[str]:
    """Refuse settings that the shared W_v and the missing sub-layer rule out; in an encoder the part has no effect."""
    problems = needs_cross_attention(design, config)
    if design.stack is Stack.DECODER and config.encoder_embed_dim != config.decoder_embed_dim:
        problems.append(
            "--attention matt shares W_v between encoder and decoder: "
            f"--encoder-embed-dim {config.encoder_embed_dim} must equal --decoder-embed-dim {config.decoder_embed_dim}"
        )
    return problems


part(
    Axis.ATTENTION,
    "matt",
    summary="no decoder self-attention; the cross-attention also averages the target's values so far",
    conflicts=conflicts,
    no_fold="stock fairseq has no average attention",
)(lambda depth, design: AttentionPlan(decoder_self=None, cross=MergedAttention))


class JoinedAttention(ThreeMapsAttention):
    """out = inner(x) + cross(x, h): two complete attentions under one residual connection and one LayerNorm.

    The cross-attention keeps its stock names; ``self_attn`` below it is the inner one, which has its own decoding
    state. The authors draw q, k and v of a cross-attention as three matrices.

    Args:
        width, heads, dropout, others: those of :class:`fairseq.modules.MultiheadAttention`, for the cross-attention.
        inner: class of the attention to the target.
    """

    attends_by_forward = True

    def __init__(
        self, width: int, heads: int, dropout: float = 0.0, inner: type[nn.Module] = Attention, **others: Any
    ) -> None:
        target = inner(width, heads, dropout=dropout, self_attention=True)  # which draws its weights first
        super().__init__(width, heads, dropout=dropout, **others)
        self.self_attn: Any = target

    def attend(self, query: Tensor, key: Tensor | None, *args: Any, **kwargs: Any) -> Attended:
        """See :meth:`Attention.attend`; the weights are those of the cross-attention."""
        given = AttendOptions(*args, **kwargs)
        own = given._replace(key_padding_mask=given.query_padding_mask, need_weights=False, need_head_weights=False)
        target, _, _ = self.self_attn.attend(query, query, *own)
        source, weights, logits = super().attend(query, key, *given)
        return source + target, weights, logits


part(
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
)(lambda depth, design: AttentionPlan(decoder_self=None, cross=JoinedAttention))


part(
    Axis.ATTENTION,
    "matt_aan",
    summary="gated average attention and cross-attention side by side in one sub-layer of the decoder",
    parameters=(
        NewParameter("encoder_attn.self_attn.gate.weight", "(2C, 2C)", "drawn: Xavier uniform"),
        NewParameter("encoder_attn.self_attn.gate.bias", "(2C)", "0"),
    ),
    conflicts=needs_cross_attention,
    no_fold="stock fairseq has no average attention",
)(lambda depth, design: AttentionPlan(decoder_self=None, cross=partial(JoinedAttention, inner=AverageAttention)))


PAPER = "Zhang et al., EMNLP 2019, https://arxiv.org/abs/1908.11365"
NOT_RELEASED = "The paper's table 3 names this model without an equation, and its code was not released. "
WITHOUT_DS_INIT = (
    "The paper trains this variant of row 4 without DS-Init (`--init keep`); its deep models have DS-Init, as here."
)
method(
    "dsinit_matt",
    title="DS-Init + MAtt",
    paper=PAPER,
    equation=(
        r"decoder: $`o_t = \mathrm{LN}(x_t + (C_t + \frac{1}{t} \sum_{k \leq t} x_k W_v)\, W_o)`$, then feed-forward "
        "(equations 16 and 17); $`C`$ is the cross-attention before its output map $`W_o`$, with the same $`W_v`$; "
        "biases are left out here; encoder and initialisation as DS-Init"
    ),
    norm_position="post",
    attention="matt",
    init="ds_init",
    departures=(
        "The text names $`W_o`$ as shared between the two halves; the released code and the parameter counts share "
        "$`W_v`$ and $`b_v`$ as well, and so does this package: a decoder layer has $`4 d^2 + 6 d`$ parameters fewer.",
    ),
)
method(
    "dsinit_matt_self",
    title="DS-Init + MAtt with self-attention",
    paper=PAPER,
    equation=(
        r"decoder: $`o = \mathrm{LN}(x + \mathrm{SA}(x) + \mathrm{CA}(x, h))`$, then feed-forward (table 3, row 6); "
        r"$`\mathrm{SA}`$ and $`\mathrm{CA}`$ are complete self- and cross-attentions, $`h`$ is the encoder's output; "
        "encoder and initialisation as DS-Init"
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
        r"decoder: $`o_t = \mathrm{LN}(x_t + \sigma(i_t) \odot x_t + \sigma(f_t) \odot g_t + \mathrm{CA}(x, h)_t)`$, "
        "then feed-forward (table 3, row 7); $`g_t`$, $`i_t`$ and $`f_t`$ as in AAN, without its feed-forward "
        r"network; $`\mathrm{CA}`$ is a complete cross-attention; encoder and initialisation as DS-Init"
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
