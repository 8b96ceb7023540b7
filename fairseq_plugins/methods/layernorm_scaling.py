"""LayerNorm Scaling: Pre-LN whose LayerNorms are divided by the square root of the depth of their layer."""

import math

from fairseq_plugins.core.method import Axis, method, part
from fairseq_plugins.core.norm import NormPlace, scaled, stock_top_norm

part(
    Axis.NORM_POSITION,
    "layernorm_scaling",
    summary="LayerNorm before the branch, divided by the square root of the layer's depth; a plain one on top",
    top=lambda design: stock_top_norm,
)(lambda site, depth, design: {NormPlace.BEFORE: scaled(1 / math.sqrt(depth))})


method(
    "layernorm_scaling",
    title="LayerNorm Scaling",
    paper="Sun et al., 2025, https://arxiv.org/abs/2502.05795",
    equation=(
        r"$`o = x + F(\mathrm{LN}(x) / \sqrt{l})`$ at depth $`l`$ from 1; the LayerNorm on top of each stack is plain"
    ),
    norm_position="layernorm_scaling",
    base_init="fairseq",
    departures=(
        r"The released code ([LayerNorm-Scaling](https://github.com/lmsdss/LayerNorm-Scaling), revision 3ac54dd) has "
        r"RMSNorm, `--norm-type rms_norm`, and draws weights from $`\mathcal{N}(0, 0.02^2)`$. The released setting "
        r"for this method cannot be chosen: the code compares it in lower case with a name in capitals.",
        "The authors advise against combining it with an initialisation that shrinks with depth.",
        "The paper is about language models; here each stack counts its own depth, and cross-attention is scaled, too.",
    ),
)
