"""LookLinear: a mirrored initialisation, after which every feed-forward sub-layer is a linear map.

Every activation that is u * g(u) with g(u) + g(-u) = 1 has phi(u) - phi(-u) = u: relu (g the unit step), gelu (g the
normal distribution function) and its approximation (g = (1 + tanh(v)) / 2, v odd in u). The identity has g = 1 and
gives 2 B A x, still linear. tanh gives 2 B tanh(Ax), odd but not linear: refused.
"""

from typing import Any

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.initialisation import StackWeights
from fairseq_plugins.core.method import Axis, method, part

LINEAR_WHEN_MIRRORED = ("relu", "gelu", "gelu_fast", "gelu_accurate", "linear")
"""Activations, by their names in fairseq, with phi(u) - phi(-u) proportional to u."""


def conflicts(design: StackDesign, config: Any) -> list[str]:
    """Refuse an odd width, and activations that leave the sub-layer non-linear."""
    problems = []
    if design.ffn_width % 2:
        problems.append(
            "--init looklinear mirrors one half of the feed-forward width in the other: "
            f"--{design.stack.value}-ffn-embed-dim {design.ffn_width} must be even"
        )
    if config.activation_fn not in LINEAR_WHEN_MIRRORED:
        problems.append(
            f"--init looklinear cannot make a feed-forward sub-layer with --activation-fn {config.activation_fn} "
            f"linear: use one of {', '.join(LINEAR_WHEN_MIRRORED)}"
        )
    return problems


@part(
    Axis.INIT,
    "looklinear",
    summary="mirrored halves in the feed-forward matrices, which make the sub-layer linear at first",
    conflicts=conflicts,
)
def initialise(weights: StackWeights, design: StackDesign) -> None:
    """Mirror the upper half of W_1's rows and the left half of W_2's columns; the biases of both become zero.

    Half of the drawn numbers stay, with their variance. For relu and a random input the output has the variance that it
    had before: f/2 columns that see all of Ax instead of f that see half of its second moment.
    """
    half = design.ffn_width // 2
    for layer in weights.layers:
        fc1, fc2 = layer.fc1, layer.fc2
        fc1.weight[half:] = -fc1.weight[:half]
        fc2.weight[:, half:] = -fc2.weight[:, :half]
        for linear in (fc1, fc2):
            if linear.bias is not None:
                linear.bias.zero_()


method(
    "looklinear",
    title="LookLinear",
    paper=(
        "Balduzzi et al., ICML 2017, https://arxiv.org/abs/1702.08591; on Transformers in Liu et al., EMNLP 2020, "
        "https://arxiv.org/abs/2004.08249"
    ),
    equation=(
        r"$`o = \mathrm{LN}(x + F(x))`$ as Post-LN, the feed-forward $`F(x) = B A x`$ at first; its matrices start as "
        r"$`W_1 = [A; -A]`$ and $`W_2 = [B, -B]`$ with zero biases, so that $`F(x) = B\,\phi(A x) - B\,\phi(-A x)`$, "
        r"and $`\phi(u) - \phi(-u) = u`$ for relu and gelu"
    ),
    norm_position="post",
    init="looklinear",
    departures=(
        "Balduzzi et al. draw orthogonal matrices; the code of the Admin paper, whose experiment this is, mirrors "
        "Xavier's, and so does this package. Attention is not changed.",
        "`--activation-dropout` hides parts of either half in training: the sub-layer is then linear in evaluation "
        "only.",
    ),
)
