"""SpanNorm: Post-LN whose last sum of a layer starts from the layer's input, so that the residual spans the layer."""

from torch import Tensor

from fairseq_plugins.core.method import Axis, Site, method, part
from fairseq_plugins.core.residual import PlainResidual, Residual, needs_norm_after


class WholeLayer(Residual):
    """layer_input + branch: the stream reaches the output through the branch alone. Shapes ``(T, B, C)``."""

    def forward(self, branch: Tensor, stream: Tensor, layer_input: Tensor) -> Tensor:
        """Add the branch to the layer's input."""
        return layer_input + branch


part(
    Axis.RESIDUAL,
    "span",
    summary="plain sums; the last one of a layer takes the layer's input in place of the stream",
    conflicts=needs_norm_after,
    no_fold="stock fairseq has no residual connection over a whole layer",
)(lambda sites, depth, design: {site: WholeLayer() if site is Site.FFN else PlainResidual() for site in sites})


method(
    "span_norm",
    title="SpanNorm",
    paper="Wang et al., 2026, https://arxiv.org/abs/2601.22580",
    equation=(
        r"$`o = \mathrm{LN}(x_{\mathrm{layer}} + F(x))`$ in the last sub-layer of a layer, the others as Post-LN"
    ),
    norm_position="post",
    residual="span",
    departures=(
        "Only the abstract and notes on the paper were at hand. The notes give the equation of a layer of two "
        "sub-layers. The paper adds a scaling that depends on the depth, which could not be read and is left out. The "
        "initialisation is `--base-init xavier`, as in other deep models for translation.",
        "The notes say nothing about the three sub-layers of a decoder layer. Here the last one takes the layer's "
        "input, and cross-attention has the residual connection of Post-LN.",
    ),
)
