"""GPT2-Norm: LayerNorm on the output of each branch, before the sum. The released GPT-2 is Pre-LN."""

from fairseq_plugins.core.method import method

method(
    "gpt2_norm",
    title="GPT2-Norm",
    paper="Bachlechner et al., UAI 2021, https://arxiv.org/abs/2003.04887",
    equation=r"$`o = x + \mathrm{LN}(F(x))`$ (section 5.2)",
    norm_position="branch",
    base_init="fairseq",
    departures=(
        "The text says neither where the dropout is nor whether there is a LayerNorm on top. Here the dropout is a "
        "part of $`F`$ and there is none on top; `--norm-on-top yes` adds one LayerNorm there.",
        "The released GPT-2 has its LayerNorms before the branches (`pre_ln`), in spite of the name.",
    ),
)
