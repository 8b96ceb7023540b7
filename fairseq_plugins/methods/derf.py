"""Derf, dynamic erf: the error function with a trained slope and shift replaces LayerNorm."""

import math

import torch
from torch import Tensor, nn

from fairseq_plugins.core.method import Axis, NewParameter, Option, method, part
from fairseq_plugins.core.norm import needs_norms
from fairseq_plugins.core.sub_layers import SUB_LAYER_NORMS
from fairseq_plugins.methods.shared.bounded import BoundedNorm


class DynamicErf(BoundedNorm):
    """weight * erf(alpha x + shift) + bias, weight and bias ``(C)``, the others scalars. Any shape ``(..., C)``."""

    def __init__(self, width: int, alpha: float) -> None:
        super().__init__(width, alpha)
        self.shift = nn.Parameter(torch.zeros(1))

    def value(self, x: Tensor, alpha: Tensor, shift: Tensor | None) -> Tensor:
        """Return erf(alpha x + shift)."""
        assert shift is not None
        return (alpha * x + shift).erf_()

    def gradient(self, by_value: Tensor, value: Tensor, x: Tensor, alpha: Tensor, shift: Tensor | None) -> Tensor:
        """Multiply by erf'(z) = 2 / sqrt(pi) exp(-z^2)."""
        assert shift is not None
        z = alpha * x + shift
        return (by_value * z.square_().neg_().exp_()).mul_(2 / math.sqrt(math.pi))


part(
    Axis.NORM_TYPE,
    "derf",
    summary="weight * erf(alpha x + shift) + bias at every place of `--norm-position` and on top, alpha and shift "
    "one trained scalar each",
    options=(Option("derf_alpha", 0.5, "start of Derf's alpha"),),
    parameters=tuple(
        NewParameter(f"{place}.{name}", "(1)", initial)
        for place in (*SUB_LAYER_NORMS, "layer_norm")
        for name, initial in (("alpha", "0.5, or `--derf-alpha`"), ("shift", "0, one trained scalar"))
    ),
    conflicts=needs_norms,
    no_fold="stock fairseq has LayerNorms alone",
)(lambda site, design: lambda width: DynamicErf(width, design.options.derf_alpha))


method(
    "derf",
    title="Derf",
    paper="Chen et al., 2025, https://arxiv.org/abs/2512.10938",
    equation=(
        r"$`o = x + F(\gamma \odot \mathrm{erf}(\alpha x + s) + \beta)`$, $`\alpha = 0.5`$, $`s = 0`$, $`\gamma = "
        r"1`$, $`\beta = 0`$ at first; one more on top of each stack"
    ),
    norm_position="pre",
    norm_type="derf",
    base_init="fairseq",
    departures=(
        r"The released GPT-2 ([Derf](https://github.com/zlab-princeton/Derf), revision 8dd9ea3) starts $`\alpha`$ at "
        r"1 in attention, feed-forward and on top: `--derf-alpha 1`. A trained scalar on the embeddings is not "
        r"supported.",
        "The paper has no model for translation.",
        "Derf replaces the LayerNorms of `--norm-position`. The norms of `--layernorm-embedding`, a history and a "
        "second stream remain LayerNorms.",
    ),
)
