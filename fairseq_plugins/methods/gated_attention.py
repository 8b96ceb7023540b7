"""Gated attention: a sigmoid of the query's input multiplies the output of each head (position G1 of the paper)."""

from functools import partial
from typing import Any

from torch import Tensor, nn

from fairseq_plugins.core.attention import Attended, Attention, AttentionPlan
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.linear_maps import MapWith, call_maps
from fairseq_plugins.core.method import Axis, NewParameter, Option, Site, method, part


class Gate(nn.Module):
    """Multiplies by the gate that it is given. Shapes ``(..., C)``."""

    open_by: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Multiply the heads by their gates."""
        assert self.open_by is not None
        return x * self.open_by


class GatedAttention(Attention):
    """Softmax attention with a gate for each dimension of a head, or for each head.

    The other arguments are those of :class:`fairseq.modules.MultiheadAttention`.
    """

    attends_by_forward = True

    def __init__(self, width: int, heads: int, *args: Any, for_heads: bool = False, **kwargs: Any) -> None:
        super().__init__(width, heads, *args, **kwargs)
        self.gate_proj = nn.Linear(width, heads if for_heads else width, bias=False)
        nn.init.xavier_uniform_(self.gate_proj.weight)  # fairseq draws queries with a gain of 1/sqrt(2)
        self.gate = [Gate()]  # in a list, since the module belongs to the map
        self.out_proj: Any = MapWith(self.out_proj, "gate", self.gate[0])
        call_maps(self)

    def attend(self, query: Tensor, key: Tensor | None, *args: Any, **kwargs: Any) -> Attended:
        """Attend as :meth:`Attention.attend` does, with gates."""
        sigmoid = self.gate_proj(query).sigmoid()
        self.gate[0].open_by = sigmoid.repeat_interleave(query.size(-1) // sigmoid.size(-1), dim=-1)
        result = super().attend(query, key, *args, **kwargs)
        self.gate[0].open_by = None
        return result


@part(
    Axis.ATTENTION,
    "gated",
    summary="softmax attention whose heads are multiplied by a sigmoid of what the queries are made of",
    options=(
        Option("gated_by", "dimension", "a gate for each dimension of a head, or for each head", ("dimension", "head")),
    ),
    parameters=tuple(
        NewParameter(
            f"{site.value}.gate_proj.weight",
            "(C, C)",
            "drawn by Xavier's uniform rule; `(H, C)` with `--gated-by head`",
        )
        for site in (Site.SELF, Site.CROSS)
    ),
    no_fold="stock fairseq has no gates",
)
def build(depth: int, design: StackDesign) -> AttentionPlan:
    """Return the plan of gated attentions, for self- and cross-attention."""
    attention = partial(GatedAttention, for_heads=design.options.gated_by == "head")
    return AttentionPlan(encoder_self=attention, decoder_self=attention, cross=attention)


method(
    "gated_attention",
    title="Gated attention",
    paper="Qiu et al., NeurIPS 2025, https://arxiv.org/abs/2505.06708",
    equation=(
        r"$`\mathrm{MHA}(q, k, v) = W^O (\mathrm{heads} \odot \sigma(W_g x))`$ with $`x`$ what the queries are made "
        "of; the layers are Pre-LN, and there is no bias in the gate"
    ),
    norm_position="pre",
    attention="gated",
    base_init="fairseq",
    departures=(
        r"The released code ([gated_attention](https://github.com/qiuzh20/gated_attention), revision 49645df) has "
        r"both forms, for dimensions and for heads. The released code draws every matrix from $`\mathcal{N}(0, "
        r"0.02^2)`$; here the gate is drawn by Xavier's uniform rule. Norms on queries and keys exist only in the "
        r"released code.",
        "The paper is about language models. In cross-attention the gate reads the decoder, as the queries do.",
    ),
)
