"""ResiDual: a Post-LN stream, and beside it the plain sum of all branches, which is normalised and added on top.

Xie et al. 2023, https://arxiv.org/abs/2304.14802, section 3::

    x_{k+1} = LN(x_k + F_k(x_k)),   d_{k+1} = d_k + s F_k(x_k),   d_0 = s x_0,   y = a x_L + LN(d_L)
"""

from __future__ import annotations

from typing import Any

import torch
from fairseq.modules import LayerNorm
from torch import Tensor

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Option, Site, method, part
from fairseq_plugins.core.norm import NormPlace, layer_norm_parameters, norms_always
from fairseq_plugins.core.residual import PlainResidual, Residual, SideStream

EPSILON = 1e-7
"""Epsilon of the LayerNorm on the sum, in the released code."""


class DualResidual(PlainResidual):
    """stream + branch, and side + s * branch. Shapes ``(T, B, C)``."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def carry(self, branch: Tensor, stream: Tensor, side: Tensor) -> Tensor:
        """Add the branch to the sum of all branches."""
        return torch.add(side, branch, alpha=self.scale)


class DualStream(SideStream):
    """Starts as s times the embedding; its LayerNorm is added to a times the stream. Shapes ``(T, B, C)``."""

    def __init__(self, width: int, scale: float, alpha: float) -> None:
        super().__init__()
        self.scale, self.alpha = scale, alpha
        self.norm = LayerNorm(width, eps=EPSILON)

    def start(self, x: Tensor) -> Tensor:
        """Scale the embedding."""
        return x * self.scale

    def finish(self, x: Tensor, side: Tensor) -> Tensor:
        """Add both streams."""
        return torch.add(self.norm(side), x, alpha=self.alpha)


def conflicts(design: StackDesign, config: Any) -> list[str]:
    """Refuse layers that are not Post-LN: their stream is the sum of all branches already."""
    if norms_always(design, NormPlace.AFTER):
        return []
    place = design.choice(Axis.NORM)
    return [f"--residual resi_dual keeps the sum of all branches beside a Post-LN stream: use --norm post, not {place}"]


@part(
    Axis.RESIDUAL,
    "resi_dual",
    summary="stream + branch, and beside it the sum of all branches, normalised and added on top",
    options=(
        Option("resi_dual_scale", 1.0, "factor of embedding and branches in their sum; below 1 against fp16's range"),
        Option("resi_dual_alpha", 1.0, "factor of the Post-LN stream on top"),
    ),
    parameters=layer_norm_parameters("side_stream.norm"),
    conflicts=conflicts,
    no_fold="stock fairseq has one stream",
    side_stream=lambda design: DualStream(design.width, design.options.resi_dual_scale, design.options.resi_dual_alpha),
)
def build(sites: tuple[Site, ...], depth: int, design: StackDesign) -> dict[Site, Residual]:
    """The same at every site."""
    return {site: DualResidual(design.options.resi_dual_scale) for site in sites}


method(
    "resi_dual",
    title="ResiDual",
    paper="Xie et al., 2023, https://arxiv.org/abs/2304.14802",
    equation=(
        r"$`o = \mathrm{LN}(x + F(x))`$, and $`x_L + \mathrm{LN}(x_0 + \sum_k F_k)`$ on top (section 3); the sum takes "
        "the branches as they are, after their dropout and before any LayerNorm"
    ),
    norm="post",
    residual="resi_dual",
    base_init="fairseq",
    departures=(
        "The released code ([ResiDual](https://github.com/microsoft/ResiDual), revision 8682f75) multiplies the "
        "embedding and the branches in the sum by 0.05 in its 18-layer models in half precision, where the sum would "
        "leave the range of numbers: `--resi-dual-scale 0.05`. The LayerNorm takes the factor out again, except that "
        r"its $`\epsilon = 10^{-7}`$ weighs more.",
        "The released code builds the sum of the decoder in the same way, from its own embedding; keys and values of "
        "the cross-attention read the encoder's output, both streams added.",
    ),
)
