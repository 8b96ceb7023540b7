"""ResiDual: a Post-LN stream and the plain sum of all branches, which is normalised and added on top.

SiameseNorm: branches read both streams.
"""

import math
from typing import Any

import torch
from fairseq.modules import LayerNorm
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Option, Site, method, part
from fairseq_plugins.core.norm import NormPlace, layer_norm_parameters, norm_module, norms_at, stock_top_norm
from fairseq_plugins.core.residual import ConstantSum, ExtraStreams, PlainResidual, Residual, needs_norm_after

EPSILON = 1e-7
"""Epsilon of the LayerNorm on the sum, in the released code."""


class DualResidual(PlainResidual):
    """stream + branch, and extra + s * branch. Shapes ``(T, B, C)``."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def post(self, branch: Tensor, stream: Tensor, extra: Tensor) -> Tensor:
        """Add the branch to the sum of all branches."""
        return torch.add(extra, branch, alpha=self.scale)


class DualStream(ExtraStreams):
    """Starts as s times the embedding; its LayerNorm is added to a times the stream. Shapes ``(T, B, C)``."""

    def __init__(self, norm: nn.Module, scale: float = 1.0, alpha: float = 1.0) -> None:
        super().__init__()
        self.norm, self.scale, self.alpha = norm, scale, alpha

    def start(self, x: Tensor) -> Tensor:
        """Return the embedding times s."""
        return x * self.scale

    def finish(self, x: Tensor, extra: Tensor) -> Tensor:
        """Add the norm of the extra stream to the stream."""
        return torch.add(self.norm(extra), x, alpha=self.alpha)


class SiameseResidual(ConstantSum):
    """stream + branch / c, extra + branch; the branch reads stream + LN(extra). Shapes ``(T, B, C)``."""

    def __init__(self, norm: nn.Module, divisor: float) -> None:
        super().__init__(branch=1 / divisor)
        self.norm = norm

    def pre(self, stream: Tensor, extra: Tensor) -> tuple[Tensor, Any]:
        """Add the norm of the extra stream."""
        return stream + self.norm(extra), extra

    def post(self, branch: Tensor, stream: Tensor, extra: Tensor) -> Tensor:
        """Add the branch to the sum of all branches."""
        return extra + branch


part(
    Axis.RESIDUAL,
    "resi_dual",
    summary="stream + branch, and the sum of all branches, normalised and added on top",
    options=(
        Option("resi_dual_scale", 1.0, "factor of embedding and branches in their sum; below 1 against fp16's range"),
        Option("resi_dual_alpha", 1.0, "factor of the Post-LN stream on top"),
    ),
    parameters=layer_norm_parameters("side_stream.norm"),
    conflicts=needs_norm_after,
    no_fold="stock fairseq has one stream",
    extra_streams=lambda design: DualStream(
        LayerNorm(design.width, eps=EPSILON), design.options.resi_dual_scale, design.options.resi_dual_alpha
    ),
)(lambda sites, depth, design: {site: DualResidual(design.options.resi_dual_scale) for site in sites})


norms_at(
    "siamese",
    NormPlace.BEFORE,
    NormPlace.AFTER,
    summary="LayerNorm before the branch and after the sum, one on top",
    top=lambda design: stock_top_norm,
    parameters=layer_norm_parameters(*(f"{site.value}_after_norm" for site in Site)),
    no_fold="stock fairseq has one LayerNorm a sub-layer",
)


@part(
    Axis.RESIDUAL,
    "siamese",
    summary="stream + branch / c, beside it the plain sum of all branches, whose norm every branch reads, too",
    parameters=layer_norm_parameters(*(f"{site.value}_residual.norm" for site in Site), "side_stream.norm"),
    conflicts=needs_norm_after,
    no_fold="stock fairseq has one stream",
    extra_streams=lambda design: DualStream(norm_module(design, None)(design.width)),
)
def siamese(sites: tuple[Site, ...], depth: int, design: StackDesign) -> dict[Site, Residual]:
    """Divide by the root of the number of sub-layers up to the end of the layer."""
    divisor = math.sqrt(len(sites) * depth)
    return {site: SiameseResidual(norm_module(design, site)(design.width), divisor) for site in sites}


method(
    "resi_dual",
    title="ResiDual",
    paper="Xie et al., 2023, https://arxiv.org/abs/2304.14802",
    equation=(
        r"$`o = \mathrm{LN}(x + F(x))`$, and $`x_L + \mathrm{LN}(x_0 + \sum_k F_k)`$ on top (section 3); the sum "
        "takes the branches as they are, after their dropout and before any LayerNorm"
    ),
    norm_position="post",
    residual="resi_dual",
    base_init="fairseq",
    departures=(
        "The released code ([ResiDual](https://github.com/microsoft/ResiDual), revision 8682f75) multiplies embedding "
        "and branches in the sum by 0.05 in its 18-layer models, against overflow in half precision: "
        r"`--resi-dual-scale 0.05`. The LayerNorm takes the factor out again, except that its $`\epsilon = 10^{-7}`$ "
        "weighs more.",
        "The released code builds the sum of the decoder in the same way, from its own embedding; keys and values of "
        "the cross-attention read the encoder's output, both streams added.",
    ),
)
method(
    "siamese_norm",
    title="SiameseNorm",
    paper="Li et al., ICML 2026, https://arxiv.org/abs/2602.08064",
    equation=(
        r"$`O = F(\mathrm{LN}(x + \mathrm{LN}(y)))`$, $`o = \mathrm{LN}(x + O / c)`$, $`y' = y + O`$; $`c`$ is the "
        "root of the number of sub-layers up to the end of the layer, $`x_0 = y_0`$ the embedding, and "
        r"$`\mathrm{LN}(x + \mathrm{LN}(y))`$ the output of the stack"
    ),
    norm_position="siamese",
    residual="siamese",
    base_init="fairseq",
    departures=(
        r"Except for one norm, the equations follow the released code "
        r"([SiameseNorm](https://github.com/Qwen-Applications/SiameseNorm), revision 70efa00); only notes on the "
        r"paper could be read. The notes have $`c = \sqrt{l + 1}`$ with $`l`$ the number of the sub-layer, and no "
        r"norm on top.",
        r"The released code normalises $`x_0`$ but not $`y_0`$, as no option does: `--layernorm-embedding` does both.",
        "The released language models have a second form, `hybrid_pre`, which is not supported. Its first stream has "
        "HybridNorm's norms: on queries, keys and values, and after the sum of attention.",
        r"The released $`c`$ is $`\sqrt{2 l}`$ at depth $`l`$; with cross-attention $`c = \sqrt{3 l}`$ by the same "
        "rule.",
    ),
)
