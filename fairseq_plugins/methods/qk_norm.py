"""QK-norm: queries and keys are normalised in each head, so that no logit of an attention can grow without bound."""

import math

import torch
from torch import Tensor, nn

from fairseq_plugins.core.attention import AttentionPlan, head_norms, plan_with_normed_heads
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, NewParameter, Option, Site, method, part
from fairseq_plugins.methods.shared.precision import unit

part(
    Axis.ATTENTION,
    "qk_norm",
    summary="softmax attention with the stack's norm on the queries and on the keys of each head",
    parameters=head_norms("q_proj", "k_proj"),
    no_fold="stock fairseq has no norm on queries and keys",
)(lambda depth, design: plan_with_normed_heads(("q_proj", "k_proj"), design))


class UnitLength(nn.Module):
    """x / |x| for a key, g sqrt(D) x / |x| for a query: fairseq divides its logits by sqrt(D). Shapes ``(..., D)``."""

    def __init__(self, start: float | None) -> None:
        super().__init__()
        self.scale = None if start is None else nn.Parameter(torch.full((1,), start))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise; the released code counts shorter lengths as 1e-12."""
        return unit(x, 1e-12, 1.0 if self.scale is None else self.scale * math.sqrt(x.size(-1)))


@part(
    Axis.ATTENTION,
    "cosine",
    summary="softmax of the cosines of queries and keys in each head, times one trained number for each attention",
    options=(Option("cosine_length", 75, "97.5th percentile of the lengths of sentences, in subwords", least=2),),
    parameters=tuple(
        NewParameter(f"{site.value}.q_proj.norm.scale", "(1)", r"$`\log_2(75^2 - 75)`$, 75 or `--cosine-length`")
        for site in (Site.SELF, Site.CROSS)
    ),
    no_fold="stock fairseq does not normalise queries and keys",
)
def cosine(depth: int, design: StackDesign) -> AttentionPlan:
    """Return the plan of attentions whose queries and keys have unit length, times a trained scale."""
    length = design.options.cosine_length
    starts = {"q_proj": math.log2(length**2 - length), "k_proj": None}
    return plan_with_normed_heads(tuple(starts), design, lambda name: UnitLength(starts[name]))


method(
    "qk_norm",
    title="QK-norm",
    paper=(
        "Dehghani et al., ICML 2023, https://arxiv.org/abs/2302.05442; Henry et al., Findings of EMNLP 2020, "
        "https://arxiv.org/abs/2010.04245"
    ),
    equation=(
        r"weights $`\mathrm{softmax}(\mathrm{LN}(q)\, \mathrm{LN}(k)^\top / \sqrt{d_{\mathrm{head}}})`$, the "
        "LayerNorms over the dimensions of a head; the layers are Pre-LN, with one more LayerNorm on top of each stack"
    ),
    norm_position="pre",
    attention="qk_norm",
    base_init="fairseq",
    departures=(
        "The large vision Transformers have this form, without a bias in the LayerNorms; here there is a bias. "
        "`--norm-type rms_norm` is the form of later language models. All heads of an attention share the norm.",
        "The form of Henry et al., who proposed it for translation, is QKNorm (cosines).",
        "QK-norm combines with any choice on the other axes, but with no other `--attention`.",
    ),
)
method(
    "cosine_attention",
    title="QKNorm (cosines)",
    paper="Henry et al., Findings of EMNLP 2020, https://arxiv.org/abs/2010.04245",
    equation=(
        r"weights $`\mathrm{softmax}(g\, q k^\top / \Vert q \Vert \Vert k \Vert)`$ with one trained number $`g`$, "
        r"$`\log_2(L^2 - L)`$ at first; the layers are Pre-LN, with FixNorm and SmallInit"
    ),
    norm_position="pre",
    attention="cosine",
    reparam="fix_norm",
    init="small",
    departures=(
        "The released code ([QKNorm](https://github.com/CyndxAI/QKNorm), revision c628cb5) extends the code of "
        "ScaleNorm + FixNorm, with LayerNorms; it takes $`L`$, the 97.5th percentile of the lengths of sentences, as "
        "a setting, 72 to 79: `--cosine-length`. The released configurations have a warm-up of 8,000 updates; "
        "ScaleNorm + FixNorm has none.",
    ),
)
