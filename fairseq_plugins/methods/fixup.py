"""FixUp: no LayerNorm; every branch starts at exactly zero, its inner matrices small, and scalars replace all biases.

The shifts before the branches and on top of the stacks replace the LayerNorms; those inside the feed-forward sub-layer
replace its biases; the factor of a branch is that of another part and starts at 1.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.initialisation import StackWeights, attentions, linear_maps
from fairseq_plugins.core.linear_maps import AffineMap
from fairseq_plugins.core.method import Axis, NewParameter, Option, Site, Stack, method, part
from fairseq_plugins.core.norm import AffineNorm, NormPlace, no_other_norm
from fairseq_plugins.core.sub_layers import SUB_LAYER_NORMS, sites_of

RELEASED_CROSS_BRANCHES = 12
"""L in the authors' attention if its caller does not pass it, as for their cross-attention."""


class ScalarShift(AffineNorm):
    """s (x - b) with trained scalars that start at 1 and 0; s is 1 unless ``scaled``. Any shape."""

    def __init__(self, scaled: bool = False) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(1))
        self.scale = nn.Parameter(torch.ones(1)) if scaled else None

    def forward(self, x: Tensor) -> Tensor:
        """Shift ``(..., C)``, then scale it."""
        return x - self.shift if self.scale is None else self.scale * (x - self.shift)

    def affine(self) -> tuple[Tensor, Tensor]:
        """Return scale s and shift -s b."""
        scale = torch.ones_like(self.shift) if self.scale is None else self.scale
        return scale, -scale * self.shift


class LinearThenShift(AffineMap):
    """W x - b: no vector of biases, one scalar that starts at 0. Takes the weight of ``linear``, ``(out, in)``."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., in)`` to ``(..., out)``."""
        return F.linear(x, self.weight, (-self.shift).expand(self.out_features))

    def constant(self) -> Tensor:
        """The output for zeros, ``(out)``."""
        return self.forward(torch.zeros_like(self.weight[0]))


class ShiftThenLinear(LinearThenShift):
    """W (x - b): the shift on the other side."""

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., in)`` to ``(..., out)``."""
        # Autograd then keeps x, which the activation below keeps anyway, and not x - b besides.
        return F.linear(x, self.weight, -self.shift * self.weight.sum(dim=1))


SHIFT, SCALE = "0, one trained scalar", "1, one trained scalar"


part(
    Axis.NORM_POSITION,
    "fixup",
    summary="no LayerNorm; a trained scalar is subtracted before each branch and on top of each stack",
    parameters=(
        *(NewParameter(f"{name}.shift", "(1)", SHIFT) for name in (*SUB_LAYER_NORMS, "layer_norm")),
        NewParameter("layer_norm.scale", "(1)", SCALE),
    ),
    conflicts=no_other_norm,
    no_fold="stock fairseq has no Transformer without LayerNorm",
    top=lambda design: lambda width: ScalarShift(scaled=design.stack is Stack.ENCODER),
)(lambda site, depth, design: {NormPlace.BEFORE: lambda width: ScalarShift()})


@part(
    Axis.BIAS,
    "fixup",
    summary="no biases; a trained scalar is subtracted before and behind the activation",
    parameters=(NewParameter("fc1.shift", "(1)", SHIFT), NewParameter("fc2.shift", "(1)", SHIFT)),
    no_fold="stock fairseq has no scalar behind an activation",
)
def replace_biases(layer: Any, design: StackDesign) -> None:
    """Remove every bias; the two maps of the feed-forward sub-layer get their scalars."""
    layer.fc1, layer.fc2 = LinearThenShift(layer.fc1), ShiftThenLinear(layer.fc2)
    for module in attentions([layer]):
        for projection in (module.q_proj, module.k_proj, module.v_proj):
            # Neither trained nor stored: stock attention concatenates these three biases.
            if projection.bias is not None:
                del projection.bias
                projection.register_buffer("bias", torch.zeros(projection.out_features), persistent=False)
    for _, linear in linear_maps(layer):
        if isinstance(linear.bias, nn.Parameter):
            del linear.bias
            # A plain attribute: fairseq's trainer logs parameters that are None as shared ones.
            linear.bias = None  # type: ignore[assignment]


@part(
    Axis.INIT,
    "fixup",
    summary="the last matrix of each branch starts at zero, the others shrink with the number of branches",
    options=(
        Option("fixup_rule", "paper", "branches that cross-attention counts: all, or 12 (code)", ("paper", "released")),
    ),
)
def initialise(weights: StackWeights, design: StackDesign) -> None:
    """Zero the last matrices and an untied output projection; scale the other matrices by their factor.

    L counts the branches that exist, 2 N + 3 M in a translation model with softmax attention. A branch that does not
    end in a linear map has all its matrices scaled and none at zero. The factor is L^(-1/(2m-2)) for a branch of m
    matrices. The rule has none for a single matrix, which is the last one: 1.
    """
    for layer in weights.layers:
        for site in sites_of(layer):
            branch = None if site is Site.FFN else getattr(layer, site.value)
            maps = [layer.fc1, layer.fc2] if branch is None else [linear for _, linear in linear_maps(branch)]
            last = layer.fc2 if branch is None else getattr(branch, "out_proj", None)
            released = site is Site.CROSS and design.options.fixup_rule == "released"
            branches = RELEASED_CROSS_BRANCHES if released else weights.branches
            factor = float(branches ** (-1 / (2 * len(maps) - 2))) if len(maps) > 1 else 1.0
            for linear in maps:
                linear.weight.mul_(0.0 if linear is last else factor)
    if weights.output is not None:
        for parameter in weights.output.parameters():
            parameter.zero_()


method(
    "fixup",
    title="FixUp",
    paper="Zhang et al., ICLR 2019, https://arxiv.org/abs/1901.09321",
    equation=(
        "$`o = x + s F(x - b)`$ with scalars $`s = 1`$ and $`b = 0`$ at first, no LayerNorm, $`F = 0`$ at first "
        r"(section 3); the feed-forward is $`F(y) = W_2 (\mathrm{relu}(W_1 y - b_2) - b_3)`$; in a model of $`L`$ "
        "sub-layers Xavier's $`W_q, W_k, W_v`$ start times $`L^{-1/6}`$, $`W_1`$ times $`L^{-1/2}`$, the last matrix "
        "of a sub-layer and an output projection of its own at zero"
    ),
    norm_position="fixup",
    residual="rezero",
    bias="fixup",
    init="fixup",
    options={"rezero_alpha": 1.0, "rezero_alpha_per": "sublayer"},
    departures=(
        "The text gives the rule for a branch of any kind; the positions of the scalars in a Transformer, and the "
        "scale and shift on top of the stacks, follow the authors' code. The text implies one more shift before the "
        "output map of an attention.",
        "The released cross-attention does not receive the number of sub-layers and takes 12: `--fixup-rule "
        "released`. The default $`L`$ counts the sub-layers that exist, $`2 N + 3 M`$ in an encoder-decoder, fewer "
        "under merged attention, in both stacks.",
        "An output projection that is tied to the token table, and an adaptive softmax, keep the weights as drawn, "
        "in the released code too.",
        "The DS-Init authors have one scalar for all three shifts of the feed-forward, draw the q, k and v of "
        r"cross-attention with a bound $`\sqrt{2}`$ times larger, scale merged attention by $`L^{-1/8}`$ and multiply "
        "by $`s`$ before the dropout. None of this is done here.",
    ),
)
