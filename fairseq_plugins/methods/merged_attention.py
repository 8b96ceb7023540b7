"""Merged attention (MAtt): a simplified average attention merged with the cross-attention, for decoding speed.

The decoder layer loses its self-attention; the mean of the value vectors so far replaces it (section 6 of the paper).

Legend: T target time, S source time, N sentences, W hypotheses of each, C width, H heads, D width of a head.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_plugins.core.attention import Attended, AttentionPlan, Given, ThreeMapsAttention, needs_cross_attention
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Stack, method, part
from fairseq_plugins.methods.shared.averages import RunningAverage
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
        given, length = Given(*args, **kwargs), len(query)
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
    """Refuse what the shared W_v and the missing sub-layer rule out; in an encoder the part has no effect."""
    problems = needs_cross_attention(design, config)
    if design.stack is Stack.DECODER and config.encoder_embed_dim != config.decoder_embed_dim:
        problems.append(
            "--attention matt shares W_v between encoder and decoder: "
            f"--encoder-embed-dim {config.encoder_embed_dim} must equal --decoder-embed-dim {config.decoder_embed_dim}"
        )
    return problems


@part(
    Axis.ATTENTION,
    "matt",
    summary="no decoder self-attention; the cross-attention also averages the target's values so far",
    conflicts=conflicts,
    no_fold="stock fairseq has no average attention",
)
def build(depth: int, design: StackDesign) -> AttentionPlan:
    """Build merged attention, which replaces both attentions of the decoder."""
    return AttentionPlan(decoder_self=None, cross=MergedAttention)


PAPER = "Zhang et al., EMNLP 2019, https://arxiv.org/abs/1908.11365"
method(
    "dsinit_matt",
    title="DS-Init + MAtt",
    paper=PAPER,
    equation=(
        r"decoder: $`o_t = \mathrm{LN}(x_t + (C_t + \frac{1}{t} \sum_{k \leq t} x_k W_v)\, W_o)`$, then "
        r"feed-forward (equations 16 and 17); $`C`$ is the cross-attention before its output map $`W_o`$, with the "
        r"same $`W_v`$; biases are left out here; encoder and initialisation as DS-Init"
    ),
    norm_position="post",
    attention="matt",
    init="ds_init",
    departures=(
        r"The text names $`W_o`$ as shared between the two halves; the released code and the parameter counts "
        r"share $`W_v`$ and $`b_v`$ as well, and so does this package: a decoder layer has $`4 d^2 + 6 d`$ "
        "parameters fewer.",
    ),
)
