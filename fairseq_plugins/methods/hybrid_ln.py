"""Hybrid: a Post-LN encoder under a Pre-LN decoder.

No gradient vanishes, yet it diverges at 18 layers, so vanishing gradients cannot be the reason.
"""

from fairseq_plugins.core.method import method

method(
    "hybrid_ln",
    title="Post-LN encoder, Pre-LN decoder",
    paper="Liu et al., EMNLP 2020, https://arxiv.org/abs/2004.08249",
    equation=(
        r"encoder $`o = \mathrm{LN}(x + F(x))`$, decoder $`o = x + F(\mathrm{LN}(x))`$ (table 1); one more LayerNorm "
        "on top of the decoder"
    ),
    norm_position="post,pre",
    base_init="fairseq",
)
