"""Peri-LN: a LayerNorm before each branch and one behind it, before the sum; Gemma 2 has the same places."""

from fairseq_plugins.core.method import Site, method
from fairseq_plugins.core.norm import NormPlace, layer_norm_parameters, norms_at, stock_top_norm

norms_at(
    "peri",
    NormPlace.BEFORE,
    NormPlace.BRANCH,
    summary="LayerNorm before the branch and on the branch, one more on top",
    top=lambda design: stock_top_norm,
    parameters=layer_norm_parameters(*(f"{site.value}_branch_norm" for site in Site)),
    no_fold="stock fairseq has one LayerNorm a sub-layer",
)
method(
    "peri_ln",
    title="Peri-LN",
    paper="Kim et al., ICML 2025, https://arxiv.org/abs/2502.02732",
    equation=(
        r"$`o = x + \mathrm{LN}(F(\mathrm{LN}(x)))`$ (section 3); one more LayerNorm on top of each stack, and with "
        "`--layernorm-embedding` one on the embeddings, which the paper leaves open"
    ),
    norm_position="peri",
    base_init="fairseq",
    departures=(
        "The paper's models have RMSNorm and no dropout. Here the dropout is a part of $`F`$, before the second "
        "LayerNorm, as under `--norm-position branch`; `--norm-type rms_norm` is RMSNorm at every place.",
        "The paper is about language models; cross-attention has the same two LayerNorms here.",
    ),
)
