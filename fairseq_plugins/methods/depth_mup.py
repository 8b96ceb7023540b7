"""CompleteP and depth-muP: branches, learning rates and Adam's epsilon scale with the depth, by one exponent alpha.

Settings that are tuned on a model of L_base layers then hold at every depth.
"""

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.initialisation import StackWeights, scale_rates
from fairseq_plugins.core.method import Axis, Option, Site, method, part
from fairseq_plugins.core.residual import ConstantSum, Residual

OPTIONS = (
    Option("depth_mup_alpha", 1.0, "exponent of the depth, from 0.5, depth-muP, to 1, CompleteP", least=0.5),
    Option("depth_mup_base", 2, "layers of the model whose settings hold at every depth", least=1),
)


@part(
    Axis.RESIDUAL,
    "depth_mup",
    summary="stream + (L / base)^-alpha * branch, L the layers of the stack",
    options=OPTIONS,
)
def build(sites: tuple[Site, ...], depth: int, design: StackDesign) -> dict[Site, Residual]:
    """Return equal residual connections for all sub-layers of a layer."""
    options = design.options
    scale = (design.layers / options.depth_mup_base) ** -options.depth_mup_alpha
    return {site: ConstantSum(branch=scale) for site in sites}


@part(
    Axis.INIT,
    "depth_mup",
    summary="the base initialisation; the layers' learning rate and epsilon scale with the depth",
    options=OPTIONS,
)
def initialise(weights: StackWeights, design: StackDesign) -> None:
    """Mark the parameters of the layers; the weights stay."""
    options = design.options
    depth, alpha = design.layers / options.depth_mup_base, options.depth_mup_alpha
    for layer in weights.layers:
        scale_rates(layer.parameters(), lr=depth ** (alpha - 1), eps=depth**-alpha)


method(
    "completep",
    title="CompleteP",
    paper="Dey et al., NeurIPS 2025, https://arxiv.org/abs/2505.01618",
    equation=(
        r"$`o = x + m^{-\alpha} F(\mathrm{LN}(x))`$ with $`m = L / L_{\mathrm{base}}`$ and $`\alpha = 1`$; the "
        r"layers' learning rate is multiplied by $`m^{\alpha - 1}`$ and their $`\epsilon`$ in Adam by "
        r"$`m^{-\alpha}`$, and one more LayerNorm is on top of each stack"
    ),
    norm_position="pre",
    residual="depth_mup",
    init="depth_mup",
    base_init="fairseq",
    departures=(
        r"$`\alpha = 1/2`$ is depth-μP ([Yang et al., ICLR 2024](https://arxiv.org/abs/2310.02244)): "
        "`--depth-mup-alpha 0.5`, where the rate of the layers falls with the root of the depth. Any optimizer that "
        "keeps weights apart heeds rates and epsilons; with `--fp16` add `--fp16-no-flatten-grads`.",
        r"Only the depth half is here: initial weights and output do not depend on the width, so a rate is valid for "
        r"one width. The released code ([nanoGPT-mup](https://github.com/EleutherAI/nanoGPT-mup/tree/completep)) has "
        r"the width half too, $`L_{\mathrm{base}} = 2`$, and no weight decay of biases and norms. There $`\epsilon`$ "
        r"is $`10^{-12}`$, also scaled for the embeddings and the last LayerNorm.",
        "The papers are about language models; each stack of a translation model scales with its own depth here.",
    ),
)
