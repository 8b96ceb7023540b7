"""ReZero: no LayerNorm; every branch is multiplied by a trained scalar that starts at zero. LayerScale: by a vector."""

import torch
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Option, Site, method, part
from fairseq_plugins.core.residual import Residual, at_each_site

PAPER = "Bachlechner et al., UAI 2021, https://arxiv.org/abs/2003.04887"


class ReZeroResidual(Residual):
    """stream + alpha * branch, alpha one scalar (equation 1) or ``(C)``. Shapes ``(T, B, C)``."""

    def __init__(self, alpha: nn.Parameter) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, branch: Tensor, stream: Tensor, layer_input: Tensor) -> Tensor:
        """Add the scaled branch to the stream."""
        return torch.addcmul(stream, branch, self.alpha)

    def branch_scale(self) -> Tensor:
        """alpha, ``(1)`` or ``(C)``."""
        return self.alpha


@part(
    Axis.RESIDUAL,
    "rezero",
    summary="stream + alpha * branch with a trained scalar alpha",
    options=(
        Option("rezero_alpha", 0.0, "start of ReZero's alpha; the paper also tries 1"),
        Option("rezero_alpha_per", "layer", "one alpha a layer, as in the text, or a sub-layer", ("layer", "sublayer")),
    ),
    parameters=at_each_site(
        "alpha",
        "(1)",
        "0, or `--rezero-alpha`; one tensor under all these names of a layer, unless `--rezero-alpha-per sublayer`",
    ),
    no_fold="stock fairseq has no factor on a branch that could start at zero",
)
def build(sites: tuple[Site, ...], depth: int, design: StackDesign) -> dict[Site, Residual]:
    """Build the residual connections of one layer: one alpha for all (the paper and its package), or one each."""
    alphas = [nn.Parameter(torch.full((1,), design.options.rezero_alpha)) for _ in sites]
    own = design.options.rezero_alpha_per == "sublayer"
    return {site: ReZeroResidual(alpha if own else alphas[0]) for site, alpha in zip(sites, alphas, strict=True)}


def layer_scale_start(layers: int) -> float:
    """Return LayerScale's first factor in a stack of ``layers`` layers."""
    return 0.1 if layers <= 18 else 1e-5 if layers <= 24 else 1e-6


@part(
    Axis.RESIDUAL,
    "layer_scale",
    summary="stream + alpha * branch with a trained vector alpha",
    options=(Option("layer_scale_start", 0.0, "start of LayerScale's alpha; 0: the paper's value for the depth"),),
    parameters=at_each_site("alpha", "(C)", "0.1 up to 18 layers, 1e-5 up to 24, then 1e-6"),
)
def layer_scale(sites: tuple[Site, ...], depth: int, design: StackDesign) -> dict[Site, Residual]:
    """Build a vector for each sub-layer."""
    start = design.options.layer_scale_start or layer_scale_start(design.layers)
    return {site: ReZeroResidual(nn.Parameter(torch.full((design.width,), start))) for site in sites}


method(
    "rezero",
    title="ReZero",
    paper=PAPER,
    equation=r"$`o = x + \alpha F(x)`$, $`\alpha = 0`$ at first, no LayerNorm (equation 1)",
    norm_position="none",
    residual="rezero",
    base_init="fairseq",
    departures=(
        r"The authors' package multiplies by $`\alpha`$ before the dropout in the encoder and after it in the "
        "decoder; both have the same distribution, and here it is always after.",
        r"The authors' package takes PyTorch's default weights. `--base-init fairseq` is closest: the output of "
        r"attention is $`\sqrt{3}`$ times larger here, and the biases of q, k and v are not 0. The experiments of the "
        r"Admin paper take `--base-init xavier`.",
    ),
)
method(
    "rezero_alpha_one",
    title="ReZero with alpha = 1",
    paper=PAPER,
    equation=r"$`o = x + \alpha F(x)`$, $`\alpha = 1`$ at first, no LayerNorm (table 3)",
    norm_position="none",
    residual="rezero",
    base_init="fairseq",
    options={"rezero_alpha": 1.0},
)
method(
    "rezero_post_ln",
    title="ReZero + Post-LN",
    paper=PAPER + "; compared in Liu et al., EMNLP 2020, https://arxiv.org/abs/2004.08249, appendix E",
    equation=r"$`o = \mathrm{LN}(x + \alpha F(x))`$, $`\alpha = 0`$ at first",
    norm_position="post",
    residual="rezero",
)
method(
    "layer_scale",
    title="LayerScale",
    paper="Touvron et al., ICCV 2021, https://arxiv.org/abs/2103.17239",
    equation=(
        r"$`o = x + \alpha \odot F(\mathrm{LN}(x))`$ with a vector $`\alpha`$ (section 2), 0.1 at first up to 18 "
        "layers, 1e-5 up to 24, then 1e-6; one more LayerNorm on top of each stack"
    ),
    norm_position="pre",
    residual="layer_scale",
    base_init="fairseq",
    departures=(
        "The paper is about vision; each stack counts its own layers.",
        "The smallest released model of 36 layers ([CaiT](https://github.com/facebookresearch/deit), XXS36) starts at "
        "1e-5, not at 1e-6: `--layer-scale-start`. The released code draws weights with standard deviation 0.02.",
    ),
)
