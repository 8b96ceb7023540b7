"""Post-LN: the Transformer as it was first published. Stock fairseq, key for key and bit for bit."""

from fairseq_plugins.core.method import method

method(
    "post_ln",
    title="Post-LN",
    paper="Vaswani et al., NeurIPS 2017, https://arxiv.org/abs/1706.03762",
    equation=r"$`o = \mathrm{LN}(x + F(x))`$ (section 3.1)",
    norm_position="post",
    base_init="fairseq",
)
