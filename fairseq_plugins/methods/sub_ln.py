"""Sub-LN: Pre-LN with a second LayerNorm inside each branch, and maps that start larger in deeper stacks."""

import math

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.initialisation import StackWeights, linear_maps
from fairseq_plugins.core.method import Axis, Option, Site, Stack, method, part
from fairseq_plugins.core.norm import NormPlace, NormPlaces, layer_norm, layer_norm_parameters, stock_top_norm
from fairseq_plugins.core.sub_layers import sites_of
from fairseq_plugins.methods.shared.scaled_draw import draw

LARGER = ("v_proj", "out_proj", "fc1", "fc2")
"""The maps of gain gamma, except in cross-attention."""


def gamma(design: StackDesign, sub_layers: int) -> float:
    """Return the gain: sqrt(ln(3M) ln(2N) / 3) in an encoder below a decoder, else sqrt(ln n). Figure 2.

    n counts the residual sub-layers of the stack, ``sub_layers`` in each layer.
    """
    if design.stack is Stack.ENCODER and design.decoder_layers:
        return math.sqrt(math.log(3 * design.decoder_layers) * math.log(2 * design.encoder_layers) / 3)
    return math.sqrt(math.log(sub_layers * design.layers))


@part(
    Axis.NORM_POSITION,
    "sub",
    summary="LayerNorm before the branch and, but in cross-attention, again before its last map; one more on top",
    top=lambda design: stock_top_norm,
    options=(
        Option("sub_cross", "no", "a second norm in cross-attention; neither text nor code has it", ("yes", "no")),
    ),
    parameters=layer_norm_parameters("self_attn.out_proj.norm") + layer_norm_parameters("fc2.norm", shape="(F)"),
    no_fold="stock fairseq has no LayerNorm inside a branch",
)
def norms(site: Site, depth: int, design: StackDesign) -> NormPlaces:
    """Both places, but in cross-attention only the first (sections 2 and 3.1)."""
    if site is Site.CROSS and design.options.sub_cross == "no":
        return {NormPlace.BEFORE: layer_norm}
    return {NormPlace.BEFORE: layer_norm, NormPlace.INSIDE: layer_norm}


@part(
    Axis.INIT,
    "sub_ln",
    summary="values, outputs and feed-forward drawn with a gain that grows with the logarithm of the depths",
    options=(
        Option("sub_ln_init", "paper", "Xavier normal draws, or those of nn.Linear, scaled", ("paper", "released")),
    ),
)
def initialise(weights: StackWeights, design: StackDesign) -> None:
    """Redraw the maps of the layers, with gain gamma for :data:`LARGER` and 1 for the others; embeddings stay.

    Cross-attention has gain 1. :func:`draw` says what ``paper`` and ``released`` are.
    """
    for layer in weights.layers:
        gain = gamma(design, len(sites_of(layer)))
        for name, linear in linear_maps(layer):
            larger = name.rpartition(".")[2] in LARGER and not name.startswith(Site.CROSS.value)
            draw(linear, gain if larger else 1.0, design.options.sub_ln_init)


method(
    "sub_ln",
    title="Sub-LN",
    paper="Wang et al., ICML 2023, https://arxiv.org/abs/2210.06423",
    equation=(
        r"$`o = x + W\,\mathrm{LN}(f(\mathrm{LN}(x)))`$ with $`W`$ the last matrix of the branch (figure 2); in "
        "cross-attention as Pre-LN; one more LayerNorm on top of each stack; the matrices of the values, of the "
        r"outputs and of the feed-forward, except those of cross-attention, have Xavier's gain $`\sqrt{\ln(3M) "
        r"\ln(2N) / 3}`$ in the encoder and $`\sqrt{\ln(3M)}`$ in the decoder of a translation model, "
        r"$`\sqrt{\ln(2M)}`$ in a language model"
    ),
    norm_position="sub",
    init="sub_ln",
    base_init="fairseq",
    departures=(
        "The released code ([torchscale](https://github.com/microsoft/torchscale), revision 4d1e0e8) draws every "
        "matrix and bias as `nn.Linear` does, and multiplies those of the values, of the outputs and of the "
        "feed-forward by the gain: `--sub-ln-init released`. The released attention has a rule of its own, which is "
        "never called. The default draws every matrix by Xavier's rule, which the text takes as an example; that it "
        "is the normal one is recalled.",
        "The text counts three sub-layers in a layer of the decoder. A decoder with merged attention has two, "
        r"and its gain is $`\sqrt{\ln(2M)}`$ here.",
    ),
)
