"""Keel: Post-LN on a scaled stream, whose branches have a LayerNorm of their own."""

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Option, Site, Stack, method, part
from fairseq_plugins.core.norm import NormPlace, NormPlaces, layer_norm, layer_norm_parameters
from fairseq_plugins.core.residual import ConstantSum, PlainResidual, Residual, needs_norm_after


@part(
    Axis.NORM_POSITION,
    "keel",
    summary="LayerNorm before the branch and after the sum; none after the sum of the first sub-layer",
    parameters=layer_norm_parameters(*(f"{site.value}_after_norm" for site in Site)),
    no_fold="stock fairseq has one LayerNorm a sub-layer",
)
def norms(site: Site, depth: int, design: StackDesign) -> NormPlaces:
    """Return both places; the first sub-layer of a stack, which may be a cross-attention, has only that before it."""
    plan = design.parts[Axis.ATTENTION].build(1, design)
    first = Site.CROSS if design.stack is Stack.DECODER and plan.decoder_self is None else Site.SELF
    if depth == 1 and site is first:
        return {NormPlace.BEFORE: layer_norm}
    return {NormPlace.BEFORE: layer_norm, NormPlace.AFTER: layer_norm}


@part(
    Axis.RESIDUAL,
    "keel",
    summary="L * stream + branch, L the number of sub-layers of the stack; a plain sum in the first layer",
    options=(Option("keel_alpha", 0.0, "factor of the stream; 0: the number of sub-layers of the stack"),),
    conflicts=needs_norm_after,
)
def residuals(sites: tuple[Site, ...], depth: int, design: StackDesign) -> dict[Site, Residual]:
    """The same constant in every layer but the first."""
    scale = design.options.keel_alpha or float(len(sites) * design.layers)
    return {site: PlainResidual() if depth == 1 else ConstantSum(scale) for site in sites}


method(
    "keel",
    title="Keel",
    paper="Chen and Wei, 2026, https://arxiv.org/abs/2601.19895",
    equation=(
        r"$`o = \mathrm{LN}(L x + F(\mathrm{LN}(x)))`$ with $`L`$ the number of sub-layers of the stack, but 1 in the "
        r"first layer; $`o = x + F(\mathrm{LN}(x))`$ in the first sub-layer (section 3.1); no LayerNorm on top"
    ),
    norm_position="keel",
    residual="keel",
    base_init="fairseq",
    departures=(
        "The authors have released no code. An independent implementation "
        "([vit-pytorch](https://github.com/lucidrains/vit-pytorch), revision 2e86e34) has the factor in the first "
        "feed-forward, where section 3.1 leaves it out. Cross-attention of the first layer is without it here, too.",
        "The text's LayerNorms are RMSNorms without bias (equation 9, section 3.1): `--norm-type rms_norm`. In small "
        "models it tunes the factor instead, above 1: `--keel-alpha`.",
        r"The paper is about language models, where $`L = 2M`$. A decoder with cross-attention has three sub-layers a "
        r"layer, so $`L = 3M`$ by the same rule; each stack counts its own.",
        "The paper names no initialisation; the default is `--base-init fairseq`.",
    ),
)
