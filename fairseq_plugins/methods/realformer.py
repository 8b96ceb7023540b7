"""RealFormer: residual attention. The logits of an attention are added to those of the same attention one layer below.

Memory: one S per chain is alive at a time, ``(B * H, T, S)`` in float32; autograd saves none of them. Each layer saves
its weights for the backward pass, like every attention that is not fused.

Legend: T target time, S source time, B batch, C width, H heads, D width of a head.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.core.attention import Attended, AttendOptions, Attention, AttentionPlan
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Option, method, part
from fairseq_plugins.methods.shared.cached_keys import by_head, by_position, by_sentence, keys_and_values


class ResidualAttention(Attention):
    """softmax((Q K^T / sqrt(D) + S) / terms + masks) V, where S are the unmasked logits of the layer below.

    Logits are passed on before masking: minus infinity would stay in all layers above. They are float32 even in half
    precision, in which a sum over many layers would lose its last digits. In decoding, S is computed within the step.
    ``terms`` divides S inside the softmax: 1 for the sum, the depth for the mean.
    """

    beams_share_source = True

    def __init__(self, *args: Any, terms: int = 1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.terms = terms

    def attend(self, query: Tensor, key: Tensor | None, *args: Any, **kwargs: Any) -> Attended:
        """See :meth:`Attention.attend`; the logits are S, ``(N * H, W * T, S)``, float32 or the model's float64."""
        given, length = AttendOptions(*args, **kwargs), len(query)
        keys, values, pads = keys_and_values(self, key, given.key_padding_mask, given.incremental_state)
        sentences, keys, values = len(keys), keys.flatten(0, 1), values.flatten(0, 1)
        queries = by_sentence(self, self.q_proj(query) * self.scaling, sentences).flatten(0, 1)
        logits = self.accumulate(queries, keys, given.prev_logits)
        masked = logits / self.terms if self.terms > 1 else logits
        if given.future_mask is not None and not self.encoder_decoder_attention:
            masked = masked + given.future_mask
        if pads is not None:
            forbidden = pads.to(torch.bool).unsqueeze(1).unsqueeze(1)  # B 1 1 S
            heads = masked.view(pads.size(0), self.num_heads, *masked.shape[1:])
            masked = heads.masked_fill(forbidden, float("-inf")).view(masked.size())
        probabilities = torch.softmax(masked, dim=-1)
        context = torch.bmm(self.dropout_module(probabilities.type_as(values)), values)
        output = self.out_proj(by_position(context.view(sentences, -1, *context.shape[1:]), length))
        weights: Tensor | None = None
        if given.need_weights or given.need_head_weights:
            weights = by_head(
                probabilities.view(sentences, -1, *probabilities.shape[1:]), length, given.need_head_weights
            )
        return output, weights, logits

    def accumulate(self, queries: Tensor, keys: Tensor, prev_logits: Tensor | None) -> Tensor:
        """Return S of this layer, unmasked: ``(B * H, T, S)`` from ``(B * H, T, D)``, ``(B * H, S, D)`` and S below.

        The sum is computed in place, in a product that nothing else refers to.
        """
        logits = torch.bmm(queries, keys.transpose(1, 2))
        if logits.dtype == torch.float16 or logits.dtype == torch.bfloat16:
            logits = logits.float()
        if prev_logits is not None:
            logits.add_(prev_logits)
        return logits


@part(
    Axis.ATTENTION,
    "realformer",
    summary="softmax attention that adds the logits of the layer below, for each kind of attention",
    options=(
        Option("realformer_logits", "sum", "the softmax gets the sum of logits so far, or the mean", ("sum", "mean")),
    ),
    no_fold="stock fairseq has no attention that sees the logits of the layer below",
)
def build(depth: int, design: StackDesign) -> AttentionPlan:
    """Build residual attention everywhere; with the mean, S of a layer is divided by its depth."""
    attention = partial(ResidualAttention, terms=depth if design.options.realformer_logits == "mean" else 1)
    return AttentionPlan(encoder_self=attention, decoder_self=attention, cross=attention)


method(
    "realformer",
    title="RealFormer",
    paper="He et al., Findings of ACL 2021, https://arxiv.org/abs/2012.11747",
    equation=(
        r"$`S_l = Q_l K_l^\top / \sqrt{d_{\mathrm{head}}} + S_{l-1}`$, weights $`\mathrm{softmax}(S_l)`$ (section 3); "
        "$`S_0 = 0`$, the layers are Post-LN, and masks are added to $`S_l`$ inside the softmax only"
    ),
    norm_position="post",
    attention="realformer",
    base_init="fairseq",
    departures=(
        "The released code is an encoder. The paper also translates, but only its abstract was read. Here there is "
        "one chain of logits each for the encoder's self-attention, the decoder's and the cross-attention.",
        "The authors draw weights from a truncated normal distribution of deviation 0.02, as BERT does; the code of "
        "the B2T paper, which compares the method for translation, draws as `--base-init fairseq`, the default.",
        "The released code adds -10000 where attention is masked; this package adds minus infinity.",
        "`--realformer-logits mean`, advised for 30 layers and more, divides by the depth of the layer, also where "
        "LayerDrop has left out layers below; layers pass on the sum.",
    ),
)
