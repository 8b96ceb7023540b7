"""DS-Init: depth-scaled initialisation. The deeper a layer, the smaller its initial matrices."""

import math

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.initialisation import StackWeights, draw_cross_attention_apart, linear_maps
from fairseq_plugins.core.method import Axis, Option, method, part


def factor(depth: int, alpha: float, rule: str) -> float:
    """Return the factor on the uniform bound of every matrix at ``depth``, counted from 1.

    ``paper``: alpha / sqrt(depth), equation 15. ``released``: sqrt(alpha) / depth^(1/4), since the released code passes
    alpha / sqrt(depth) to an initialiser that scales the variance.
    """
    scale = alpha * depth**-0.5
    return scale if rule == "paper" else math.sqrt(scale)


@part(
    Axis.INIT,
    "ds_init",
    summary="matrices shrink with the depth of their layer",
    options=(
        Option("ds_init_alpha", 1.0, "DS-Init's alpha", least=0),
        Option("ds_init_rule", "paper", "alpha / sqrt(depth), or its root as in the code", ("paper", "released")),
    ),
)
def initialise(weights: StackWeights, design: StackDesign) -> None:
    """Scale every matrix inside the layers; biases, LayerNorms and embeddings stay.

    The bound of cross-attention's q, k and v is sqrt(2) times larger than in fairseq, as the paper's Table 1 needs it.
    """
    rule, alpha = design.options.ds_init_rule, design.options.ds_init_alpha
    for depth, layer in enumerate(weights.layers, start=1):
        for _, linear in linear_maps(layer):
            linear.weight.mul_(factor(depth, alpha, rule))
    draw_cross_attention_apart(weights)


method(
    "ds_init",
    title="DS-Init",
    paper="Zhang et al., EMNLP 2019, https://arxiv.org/abs/1908.11365",
    equation=(
        r"$`o = \mathrm{LN}(x + F(x))`$ as Post-LN, with smaller matrices in deeper layers; at depth $`l`$ they are "
        r"drawn from $`U(-b, b)`$ with $`b = \frac{\alpha}{\sqrt{l}} \sqrt{\frac{6}{d_{\mathrm{in}} + "
        r"d_{\mathrm{out}}}}`$ (equation 15)"
    ),
    norm_position="post",
    init="ds_init",
    departures=(
        r"The released code scales the bound by $`\sqrt{\alpha}\, l^{-1/4}`$ instead of equation 15's $`\alpha\, "
        "l^{-1/2}`$, and the paper's Table 1 agrees with the code: `--ds-init-rule released`.",
        "The authors' cross-attention draws q, k and v as separate matrices (Xavier gain 1), their self-attention as "
        r"one (gain $`1/\sqrt{2}`$ in effect); both are kept here. Their Post-LN and Pre-LN models are drawn so, too: "
        "`--base-init xavier_apart`.",
        "Each stack counts from 1. `--init ds_init,keep --base-init xavier,xavier_apart` initialises the encoder "
        "alone.",
    ),
)
