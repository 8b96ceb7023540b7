"""QK-norm: queries and keys are normalised in each head, so that no logit of an attention can grow without bound.

Dehghani et al., ICML 2023, https://arxiv.org/abs/2302.05442, equation 1: ``softmax(LN(q) LN(k)^T / sqrt(D)) v``.
"""

from __future__ import annotations

from fairseq_plugins.core.attention import AttentionPlan, head_norms, plan_with_normed_heads
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, method, part


@part(
    Axis.ATTENTION,
    "qk_norm",
    summary="softmax attention with a norm on the queries and on the keys of each head, the norm module of the stack",
    parameters=head_norms("q_proj", "k_proj"),
    no_fold="stock fairseq has no norm on queries and keys",
)
def build(depth: int, design: StackDesign) -> AttentionPlan:
    """The same in self- and cross-attention. All heads of an attention share gain and bias."""
    return plan_with_normed_heads(("q_proj", "k_proj"), design)


method(
    "qk_norm",
    title="QK-norm",
    paper=(
        "Dehghani et al., ICML 2023, https://arxiv.org/abs/2302.05442; "
        "Henry et al., Findings of EMNLP 2020, https://arxiv.org/abs/2010.04245"
    ),
    equation=(
        r"weights $`\mathrm{softmax}(\mathrm{LN}(q)\, \mathrm{LN}(k)^\top / \sqrt{d_{\mathrm{head}}})`$, the "
        "LayerNorms over the dimensions of a head; the layers are Pre-LN, with one more LayerNorm on top of each stack"
    ),
    norm="pre",
    attention="qk_norm",
    base_init="fairseq",
    departures=(
        "This is the form of the large vision Transformers, whose LayerNorms have no bias; those here have one, and "
        "`--norm-module rms_norm` is the form of later language models. All heads of an attention share the norm.",
        "Henry et al., who proposed it for translation, divide queries and keys by their length and multiply the "
        "logits by a trained number that starts from the length of the sentences; that form is not supported.",
        "It can be combined with any choice on the other axes, not with another `--attention`.",
    ),
)
