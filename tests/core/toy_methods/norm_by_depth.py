"""A norm that knows its depth. As LayerNorm Scaling, arXiv 2502.05795."""

from __future__ import annotations

import math

from fairseq.modules import LayerNorm
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Site, method, part
from fairseq_plugins.core.norm import NormPlace, NormPlaces, layer_norm_parameters, stock_top_norm


class ScaledLayerNorm(nn.Module):
    """LN(x) / sqrt(depth). Any shape ``(..., C)``."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.norm = LayerNorm(width)
        self.scale = 1 / math.sqrt(depth)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, then scale."""
        return self.norm(x) * self.scale


@part(
    Axis.NORM,
    "norm_by_depth",
    summary="LayerNorm before the branch, divided by the square root of the depth; one more on top",
    top=lambda design: stock_top_norm,
    parameters=layer_norm_parameters(*(f"{site}_layer_norm.norm" for site in ("self_attn", "encoder_attn", "final"))),
    no_fold="not worked out",
)
def norms(site: Site, depth: int, design: StackDesign) -> NormPlaces:
    """Layer ``depth`` is counted from 1."""
    return {NormPlace.BEFORE: lambda width: ScaledLayerNorm(width, depth)}


method(
    "norm_by_depth",
    title="Norm by depth",
    paper="Sun et al., 2025, https://arxiv.org/abs/2502.05795",
    equation=r"$`o = x + F(\mathrm{LN}(x) / \sqrt{l})`$",
    norm="norm_by_depth",
    base_init="fairseq",
)
