"""Two norms in a sub-layer, and none after the first one. As Keel, arXiv 2601.19895.

``x' = LN(L x + F(LN'(x)))`` with L the number of sub-layers of the stack; ``x' = x + F(LN'(x))`` in the first one.
"""

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Site, method, part
from fairseq_plugins.core.norm import NormPlace, NormPlaces, layer_norm, layer_norm_parameters
from fairseq_plugins.core.residual import PlainResidual, Residual, ScaledStream


@part(
    Axis.NORM,
    "two_norms",
    summary="LayerNorm before the branch and after the sum, but in the first sub-layer",
    parameters=layer_norm_parameters(*(f"{site.value}_after_norm" for site in Site)),
    no_fold="stock fairseq has one LayerNorm a sub-layer",
)
def norms(site: Site, depth: int, design: StackDesign) -> NormPlaces:
    """Both places, but in the first sub-layer of the stack."""
    if depth == 1 and site is Site.SELF:
        return {NormPlace.BEFORE: layer_norm}
    return {NormPlace.BEFORE: layer_norm, NormPlace.AFTER: layer_norm}


@part(Axis.RESIDUAL, "two_norms", summary="L * stream + branch", no_fold="stock fairseq has one LayerNorm a sub-layer")
def residuals(sites: tuple[Site, ...], depth: int, design: StackDesign) -> dict[Site, Residual]:
    """The sum of the first sub-layer is plain."""
    scale = float(len(sites) * design.layers)
    first = Site.SELF if depth == 1 else None
    return {site: PlainResidual() if site is first else ScaledStream(scale) for site in sites}


method(
    "two_norms",
    title="Two norms",
    paper="2026, https://arxiv.org/abs/2601.19895",
    equation=r"$`o = \mathrm{LN}(L x + F(\mathrm{LN}(x)))`$",
    norm="two_norms",
    residual="two_norms",
)
