"""Pre-LN: LayerNorm before each branch and once more on top. Stock fairseq's ``normalize_before``."""

from fairseq_plugins.core.method import method

method(
    "pre_ln",
    title="Pre-LN",
    paper=(
        "Wang et al., ACL 2019, https://arxiv.org/abs/1906.01787; Xiong et al., ICML 2020, "
        "https://arxiv.org/abs/2002.04745"
    ),
    equation=r"$`o = x + F(\mathrm{LN}(x))`$; one more LayerNorm on top of each stack",
    norm_position="pre",
    base_init="fairseq",
)
