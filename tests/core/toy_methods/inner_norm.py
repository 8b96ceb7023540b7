"""A norm inside each branch, before its last map. As Sub-LN, arXiv 2210.06423."""

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Site, method, part
from fairseq_plugins.core.norm import NormPlace, NormPlaces, layer_norm, layer_norm_parameters, stock_top_norm


@part(
    Axis.NORM,
    "inner_norm",
    summary="LayerNorm before the branch and before its last map, one more on top",
    top=lambda design: stock_top_norm,
    parameters=layer_norm_parameters("self_attn.out_proj.norm", "encoder_attn.out_proj.norm")
    + layer_norm_parameters("fc2.norm", shape="(F)"),
    no_fold="stock fairseq has no LayerNorm inside a branch",
)
def norms(site: Site, depth: int, design: StackDesign) -> NormPlaces:
    """Everywhere."""
    return {NormPlace.BEFORE: layer_norm, NormPlace.INSIDE: layer_norm}


method(
    "inner_norm",
    title="Inner norm",
    paper="Wang et al., 2022, https://arxiv.org/abs/2210.06423",
    equation=r"$`o = x + W\,\mathrm{LN}(f(\mathrm{LN}(x)))`$",
    norm="inner_norm",
    base_init="fairseq",
)
