"""Value residual (ResFormer): every layer mixes its values with those of the first layer.

Decoding caches the mixed values, so that V_1 of earlier steps is not needed. Legend: T time, B batch, C width.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.core.attention import Attended, Attention, AttentionPlan
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.linear_maps import MapWith, call_maps
from fairseq_plugins.core.method import Axis, Option, method, part


class Mixing(nn.Module):
    """l1 V_n + l2 V_1 with the V_1 that it is given; without one V_n, which then is V_1. Shapes ``(..., C)``."""

    first: Tensor | None = None

    def __init__(self, trained: bool) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.full((2,), 0.5)) if trained else None

    def forward(self, own: Tensor) -> Tensor:
        """Mix the values with those of the first layer."""
        if self.first is None:
            self.first = own
            return own
        own_factor, factor = (0.5, 0.5) if self.factors is None else self.factors
        return own_factor * own + factor * self.first


class ValueResidualAttention(Attention):
    """Softmax attention over mixed values; it passes V_1 on in place of logits.

    The other arguments are those of :class:`fairseq.modules.MultiheadAttention`.
    """

    attends_by_forward = True

    def __init__(self, *args: Any, trained: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.mixing = [Mixing(trained)]  # in a list, since the module belongs to the map
        self.v_proj: Any = MapWith(self.v_proj, "mixing", self.mixing[0], before=False)
        call_maps(self)

    def attend(
        self, query: Tensor, key: Tensor | None, *args: Any, prev_logits: Tensor | None = None, **kwargs: Any
    ) -> Attended:
        """See :meth:`Attention.attend`; ``prev_logits`` are V_1, ``(S, B, C)``, or None for a source that is cached."""
        [mixing] = self.mixing
        mixing.first = prev_logits
        output, weights, _ = super().attend(query, key, *args, **kwargs)
        first, mixing.first = mixing.first, None
        return output, weights, first


@part(
    Axis.ATTENTION,
    "value_residual",
    summary="softmax attention that mixes in the values of the first layer, for each kind of attention",
    options=(Option("value_residual_mix", "half", "both factors: one half, or trained numbers", ("half", "trained")),),
    no_fold="stock fairseq has no attention that reads the values of the first layer",
)
def build(depth: int, design: StackDesign) -> AttentionPlan:
    """The first layer has nothing to mix."""
    trained = depth > 1 and design.options.value_residual_mix == "trained"
    attention = partial(ValueResidualAttention, trained=trained)
    return AttentionPlan(encoder_self=attention, decoder_self=attention, cross=attention)


method(
    "value_residual",
    title="ResFormer",
    paper="Zhou et al., ACL 2025, https://arxiv.org/abs/2410.17897",
    equation=(
        r"$`V_n \leftarrow \lambda_1 V_n + \lambda_2 V_1`$ in every layer $`n > 1`$, $`\lambda_1 = \lambda_2 = 0.5`$; "
        r"the layers are Pre-LN, and queries, keys and weights are as in softmax attention"
    ),
    norm_position="pre",
    attention="value_residual",
    base_init="fairseq",
    departures=(
        "The released code ([Value-Residual-Learning](https://github.com/Zcchill/Value-Residual-Learning), revision "
        "95652f6) has the constants; the text also trains them: `--value-residual-mix trained`, which adds "
        "`v_proj.mixing.factors` to each attention above the first layer. The paper's SVFormer, in which all layers "
        "share $`V_1`$, is not supported.",
        "The paper is about language models; here there is one chain each for the encoder's self-attention, the "
        "decoder's and the cross-attention, as in RealFormer. With LayerDrop the lowest layer that runs gives $`V_1`$.",
    ),
)
