"""B2T connection: the layer's input is added once more, just before its last LayerNorm."""

from typing import Any

from torch import Tensor

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.initialisation import StackWeights, linear_maps
from fairseq_plugins.core.method import Axis, Option, Site, method, part
from fairseq_plugins.core.residual import PlainResidual, Residual


class BottomToTop(Residual):
    """layer_input + stream + branch, to be followed by LayerNorm. Equations 5 to 7. Shapes ``(T, B, C)``."""

    def forward(self, branch: Tensor, stream: Tensor, layer_input: Tensor) -> Tensor:
        """Add the branch and the layer's input to the stream."""
        return stream + branch + layer_input


class BottomToTopSkipAll(Residual):
    """layer_input + LN(stream + branch): the connection also skips the last LayerNorm. Footnote 2."""

    def after_norm(self, x: Tensor, layer_input: Tensor) -> Tensor:
        """Add the layer's input."""
        return x + layer_input


class WeightedBottomToTop(Residual):
    """alpha * layer_input + beta * (stream + branch), no LayerNorm. Equations 9 to 11. Shapes ``(T, B, C)``."""

    def __init__(self, alpha: float, beta: float) -> None:
        super().__init__()
        self.alpha, self.beta = alpha, beta

    def forward(self, branch: Tensor, stream: Tensor, layer_input: Tensor) -> Tensor:
        """Add the branch and the layer's input to the stream."""
        return self.alpha * layer_input + self.beta * (stream + branch)


def conflicts(design: StackDesign, config: Any) -> list[str]:
    """Refuse combinations that the paper's equations do not cover."""
    problems = []
    if design.choice(Axis.NORM_POSITION) == "pre":
        problems.append(
            "--residual b2t doubles the stream in every layer under --norm-position pre: "
            "use --norm-position post or none"
        )
    if design.choice(Axis.NORM_POSITION) == "none" and design.options.b2t_skip == "all":
        problems.append("--b2t-skip all skips a LayerNorm that --norm-position none does not have")
    return problems


@part(
    Axis.RESIDUAL,
    "b2t",
    summary="plain sums; the last one of a layer also adds the layer's input",
    options=(
        Option("b2t_skip", "residual", "the layer's input joins before the last norm, or after", ("residual", "all")),
    ),
    conflicts=conflicts,
    no_fold="stock fairseq has no connection from the bottom of a layer to its top",
)
def build(sites: tuple[Site, ...], depth: int, design: StackDesign) -> dict[Site, Residual]:
    """Build plain sums, except for the last sub-layer of the layer."""
    residuals: dict[Site, Residual] = {site: PlainResidual() for site in sites}
    if design.choice(Axis.NORM_POSITION) == "none":
        # Appendix D, with the layers and the width of the stack.
        alpha = min(design.layers / 12, design.layers**-0.15)
        residuals[Site.FFN] = WeightedBottomToTop(alpha, design.width**-0.2)
    elif design.options.b2t_skip == "all":
        residuals[Site.FFN] = BottomToTopSkipAll()
    else:
        residuals[Site.FFN] = BottomToTop()
    return residuals


@part(
    Axis.INIT,
    "b2t",
    summary="initial values scaled by one constant per stack",
    options=(
        Option("b2t_init_scale", "none", "factor on initial values; layers: layers^-0.5", ("none", "layers", "0.1")),
        Option("b2t_init_scope", "matrices", "scales matrices, or all parameters", ("matrices", "parameters")),
    ),
)
def initialise(weights: StackWeights, design: StackDesign) -> None:
    """Scale the stack by one constant: its matrices, or all its parameters except the embeddings (appendix C.1)."""
    options = design.options
    scale = {"none": 1.0, "layers": design.layers**-0.5, "0.1": 0.1}[options.b2t_init_scale]
    for module in (*weights.layers, *([weights.top_norm] if weights.top_norm is not None else [])):
        if options.b2t_init_scope == "parameters":
            for parameter in module.parameters():
                parameter.mul_(scale)
        else:
            for _, linear in linear_maps(module):
                linear.weight.mul_(scale)


PAPER = "Takase et al., Findings of ACL 2023, https://arxiv.org/abs/2206.00330"
SCALED = (
    "Since 2023-05 the released code multiplies all matrices of a layer by $`N^{-0.5}`$, which the text does not "
    "mention: `--b2t-init-scale layers`. The default follows the text."
)
method(
    "b2t",
    title="B2T connection",
    paper=PAPER,
    equation=(
        r"$`o = \mathrm{LN}(x_{\mathrm{layer}} + x + F(x))`$ in the last sub-layer, others as Post-LN (equations 5 to "
        "7)"
    ),
    norm_position="post",
    residual="b2t",
    init="b2t",
    base_init="fairseq",
    departures=(SCALED,),
)
method(
    "b2t_without_ln",
    title="B2T connection without LN",
    paper=PAPER,
    equation=(
        r"$`o = \alpha x_{\mathrm{layer}} + \beta (x + F(x))`$ in the last sub-layer of a layer and $`x + F(x)`$ in "
        r"the others, $`\alpha = \min(N / 12, N^{-0.15})`$, $`\beta = d^{-0.2}`$ (equations 9 to 11, appendix D)"
    ),
    norm_position="none",
    residual="b2t",
    init="b2t",
    base_init="fairseq",
    departures=(
        "The text removes the LayerNorms inside the layers; the flags of the released recipe leave none on top of the "
        "stacks either, as here. `--norm-on-top yes` adds one.",
        SCALED,
    ),
)
method(
    "b2t_skip_all",
    title="B2T connection over all LNs",
    paper=PAPER,
    equation=(
        r"$`o = x_{\mathrm{layer}} + \mathrm{LN}(x + F(x))`$ in the last sub-layer of a layer, the others as Post-LN "
        "(footnote 2); reported to be clearly worse"
    ),
    norm_position="post",
    residual="b2t",
    init="b2t",
    base_init="fairseq",
    options={"b2t_skip": "all"},
    departures=(
        "The footnote has words alone; the equation is this package's reading. The released code does not have it.",
    ),
)
method(
    "b2t_deep",
    title="B2T connection, recipe of 100L-100L",
    paper=PAPER,
    equation=(
        r"$`o = \mathrm{LN}(x_{\mathrm{layer}} + x + F(x))`$ as the B2T connection, initial matrices times 0.1, as in "
        "the code; dropout 0.5 and word dropout 0.1 (appendix C.1)"
    ),
    norm_position="post",
    residual="b2t",
    init="b2t",
    base_init="fairseq",
    options={"b2t_init_scale": "0.1", "dropout": 0.5, "word_dropout": 0.1},
    departures=(
        'The text multiplies "the initial parameter values, except those for embeddings": '
        r"`--b2t-init-scope parameters`. The code of 2023-05 multiplies matrices alone, by $`N^{-0.5}`$, which is "
        "0.1 at 100 layers; so does the default, where biases and LayerNorms stay.",
        "The depth is chosen as everywhere: `b2t_deep_transformer_wmt_en_de_100`. The released recipe of the 18-layer "
        "models differs from it only in its initialisation, `--b2t-init-scale layers`.",
        "The released flags `--sampling-method worddrop --enc-replace-rate 0.1 --dec-replace-rate 0.1` are "
        "`--word-dropout 0.1,0.1` here. `--decay-val` has no counterpart: it changes the replacement methods of that "
        "code alone.",
    ),
)
