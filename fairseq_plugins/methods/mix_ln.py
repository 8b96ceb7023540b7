"""Mix-LN: Post-LN in the first layers of a stack, Pre-LN in the others."""

import math

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Option, Site, method, part
from fairseq_plugins.core.norm import NormPlace, NormPlaces, layer_norm, stock_top_norm


def post_layers(layers: int, share: float) -> int:
    """Return the number of Post-LN layers, floor(share * layers)."""
    return math.floor(share * layers + 1e-9)  # 0.29 * 100 is 28.999999999999996


@part(
    Axis.NORM_POSITION,
    "mix",
    summary="LayerNorm after the sum in the first layers, before the branch in the others; one more on top",
    top=lambda design: stock_top_norm,
    options=(Option("mix_post", 0.25, "share of the layers of a stack that are Post-LN, rounded down", rate=True),),
    no_fold="stock fairseq has one place for the LayerNorms of all layers of a stack",
)
def norms(site: Site, depth: int, design: StackDesign) -> NormPlaces:
    """Return the place after the sum in the first layers, and the place before the branch in the others."""
    post = depth <= post_layers(design.layers, design.options.mix_post)
    return {NormPlace.AFTER if post else NormPlace.BEFORE: layer_norm}


method(
    "mix_ln",
    title="Mix-LN",
    paper="Li et al., ICLR 2025, https://arxiv.org/abs/2412.13795",
    equation=(
        r"$`o = \mathrm{LN}(x + F(x))`$ in the first $`\lfloor a N \rfloor`$ layers, $`o = x + F(\mathrm{LN}(x))`$ in "
        "the others, $`a = 0.25`$; one more LayerNorm on top of each stack"
    ),
    norm_position="mix",
    base_init="fairseq",
    departures=(
        "A stack of fewer than four layers has no Post-LN layer with the default share, and is Pre-LN.",
        r"The released code ([MixLN](https://github.com/pixeli99/MixLN), revision ff45826) takes the number of "
        r"Post-LN layers, not their share, and has RMSNorm, `--norm-type rms_norm`, and linear maps drawn from "
        r"$`\mathcal{N}(0, 0.02^2)`$, embeddings from $`\mathcal{N}(0, 0.4)`$. The largest models, of 7 billion "
        r"parameters, have a smaller share.",
        "The paper is about language models; each stack of a translation model has its own share here.",
    ),
)
