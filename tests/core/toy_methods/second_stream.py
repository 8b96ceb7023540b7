"""A second stream, the sum of all branches, normalised on top. As ResiDual, arXiv 2304.14802.

``x' = LN(x + F(x))``, ``d' = d + F(x)``, ``d_0 = x_0``; the stack puts out ``x + LN(d)``.
"""

from __future__ import annotations

from fairseq.modules import LayerNorm
from torch import Tensor

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Site, method, part
from fairseq_plugins.core.norm import layer_norm_parameters
from fairseq_plugins.core.residual import PlainResidual, Residual, SideStream


class DualResidual(PlainResidual):
    """stream + branch, and side + branch. Shapes ``(T, B, C)``."""

    def carry(self, branch: Tensor, stream: Tensor, side: Tensor) -> Tensor:
        """Add."""
        return side + branch


class DualStream(SideStream):
    """Starts as the embedding; normalised and added on top. Shapes ``(T, B, C)``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = LayerNorm(width)

    def finish(self, x: Tensor, side: Tensor) -> Tensor:
        """Add."""
        return x + self.norm(side)


@part(
    Axis.RESIDUAL,
    "second_stream",
    summary="stream + branch, and the sum of all branches beside it",
    side_stream=lambda design: DualStream(design.width),
    parameters=layer_norm_parameters("side_stream.norm"),
    no_fold="stock fairseq has one stream",
)
def residuals(sites: tuple[Site, ...], depth: int, design: StackDesign) -> dict[Site, Residual]:
    """The same everywhere."""
    return {site: DualResidual() for site in sites}


method(
    "second_stream",
    title="Second stream",
    paper="Xie et al., 2023, https://arxiv.org/abs/2304.14802",
    equation=r"$`o = \mathrm{LN}(x + F(x))`$, and $`x_L + \mathrm{LN}(x_0 + \sum F)`$ on top",
    norm="post",
    residual="second_stream",
    base_init="fairseq",
)
