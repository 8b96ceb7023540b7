"""DeepNet: Post-LN whose stream is multiplied by a constant, with smaller values, outputs and feed-forward at first."""

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.initialisation import StackWeights, linear_maps
from fairseq_plugins.core.method import Axis, Option, Stack, method, part
from fairseq_plugins.core.residual import ConstantSum, needs_norm_after
from fairseq_plugins.core.sub_layers import sites_of
from fairseq_plugins.methods.shared.scaled_draw import draw

SMALLER = ("v_proj", "out_proj", "fc1", "fc2")
"""The maps of gain beta, in self-attention and in cross-attention."""
AS_USUAL = ("q_proj", "k_proj")
"""The maps of gain 1."""
ENCODER_BETA = {"paper": 0.87, "released": 1.15}
"""The constant in beta of an encoder below a decoder. 1.15 is the inverse of 0.87: the released code divides where the
text multiplies, and inverts the depths, but the constant once too often."""


def alpha(design: StackDesign, sub_layers: int) -> float:
    """Return the factor of the stream, figure 2: 0.81 (N^4 M)^(1/16) in an encoder below a decoder, else n^(1/4).

    n counts the residual sub-layers of the stack, ``sub_layers`` in each layer: 3M in a translation model's decoder.
    """
    if design.stack is Stack.ENCODER and design.decoder_layers:
        return 0.81 * _of_both_depths(design)
    return float((sub_layers * design.layers) ** 0.25)


def beta(design: StackDesign, sub_layers: int, rule: str = "paper") -> float:
    """Return the gain of the smaller maps: 0.87 (N^4 M)^(-1/16) in an encoder below a decoder, else (4n)^(-1/4).

    Arguments and n are those of :func:`alpha`; ``rule`` is ``paper`` (figure 2) or ``released``.
    """
    if design.stack is Stack.ENCODER and design.decoder_layers:
        return ENCODER_BETA[rule] / _of_both_depths(design)
    return float((4 * sub_layers * design.layers) ** -0.25)


def _of_both_depths(design: StackDesign) -> float:
    return float((design.encoder_layers**4 * design.decoder_layers) ** (1 / 16))


part(
    Axis.RESIDUAL,
    "deepnorm",
    summary="alpha * stream + branch, alpha a constant of the depths of both stacks",
    conflicts=needs_norm_after,
)(lambda sites, depth, design: {site: ConstantSum(alpha(design, len(sites))) for site in sites})


@part(
    Axis.INIT,
    "deepnorm",
    summary="values, outputs and feed-forward drawn with a gain that shrinks with the depths; "
    "`--base-init` has no effect on the maps that the text names",
    options=(
        Option("deepnorm_init", "paper", "Xavier normal draws, or those of nn.Linear, scaled", ("paper", "released")),
    ),
)
def initialise(weights: StackWeights, design: StackDesign) -> None:
    """Redraw the maps that the text names, after any base initialisation; all other weights stay.

    ``paper``: Xavier normal, that is N(0, gain^2 * 2 / (fan_in + fan_out)), with gain beta for :data:`SMALLER` and 1
    for :data:`AS_USUAL`; biases are 0. ``released``: what ``nn.Linear`` draws, biases too, and then both times beta in
    :data:`SMALLER`. Maps of attentions that the text does not cover keep their base initialisation.
    """
    rule = design.options.deepnorm_init
    for layer in weights.layers:
        gain = beta(design, len(sites_of(layer)), rule)
        for name, linear in linear_maps(layer):
            kind = name.rpartition(".")[2]
            if kind in SMALLER + AS_USUAL:
                draw(linear, gain if kind in SMALLER else 1.0, rule)


method(
    "deepnet",
    title="DeepNet",
    paper="Wang et al., 2022, https://arxiv.org/abs/2203.00555",
    equation=(
        r"$`o = \mathrm{LN}(\alpha x + F(x))`$ (DeepNorm, figure 2); with $`N`$ encoder and $`M`$ decoder layers "
        r"$`\alpha = 0.81 (N^4 M)^{1/16}`$ in the encoder and $`(3M)^{1/4}`$ in the decoder; the matrices of the "
        r"values, of the outputs of attention and of the feed-forward are drawn from $`\mathcal{N}(0, 2 \beta^2 / "
        r"(d_{\mathrm{in}} + d_{\mathrm{out}}))`$ with $`\beta = 0.87 (N^4 M)^{-1/16}`$ in the encoder and "
        r"$`(12M)^{-1/4}`$ in the decoder, those of queries and keys with 1 instead of $`\beta`$, biases are 0"
    ),
    norm_position="post",
    residual="deepnorm",
    init="deepnorm",
    departures=(
        "The released code ([torchscale](https://github.com/microsoft/torchscale)) draws every matrix and bias as "
        r"`nn.Linear` does, from $`U(-b, b)`$ with $`b = d_{\mathrm{in}}^{-1/2}`$, and then divides the weights and "
        r"the biases of the values, of the outputs and of the feed-forward by $`1 / \beta`$ "
        "([torchscale#16](https://github.com/microsoft/torchscale/issues/16)). In an encoder below a decoder it "
        r"divides by $`(N^4 M)^{1/16} / 1.15`$, which makes $`\beta = 1.15 (N^4 M)^{-1/16}`$; the text's 0.87 is "
        "about 1/1.15, so that constant is inverted. `--deepnorm-init released` does all that.",
        "The text gives the decoder's constants for three sub-layers a layer ($`(3M)^{1/4}`$, $`(12M)^{-1/4}`$), and "
        "for a decoder or an encoder alone those for two ($`(2M)^{1/4}`$, $`(8M)^{-1/4}`$). Both are $`n^{1/4}`$ and "
        "$`(4n)^{-1/4}`$ for $`n`$ sub-layers, as computed here, where merged attention has two a layer.",
    ),
)
