"""DyT, dynamic tanh: a bounded function with a trained slope replaces LayerNorm."""

import torch
from torch import Tensor

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, NewParameter, Option, Site, method, part
from fairseq_plugins.core.norm import NormFactory, needs_norms
from fairseq_plugins.core.sub_layers import SUB_LAYER_NORMS
from fairseq_plugins.methods.shared.bounded import BoundedNorm


class DynamicTanh(BoundedNorm):
    """weight * tanh(alpha x) + bias, weight and bias ``(C)``, alpha one scalar. Any shape ``(..., C)``."""

    def value(self, x: Tensor, alpha: Tensor, shift: Tensor | None) -> Tensor:
        """Return tanh(alpha x)."""
        return (alpha * x).tanh_()

    def gradient(self, by_value: Tensor, value: Tensor, x: Tensor, alpha: Tensor, shift: Tensor | None) -> Tensor:
        """Multiply by tanh' = 1 - tanh^2, in one operation."""
        return torch.ops.aten.tanh_backward(by_value, value)


@part(
    Axis.NORM_TYPE,
    "dyt",
    summary="weight * tanh(alpha x) + bias at every place of `--norm-position` and on top, "
    "alpha one trained scalar each",
    options=(
        Option("dyt_alpha", 0.5, "start of DyT's alpha"),
        Option("dyt_attention_alpha", 0.0, "start of alpha at attention sub-layers; 0: as elsewhere"),
    ),
    parameters=tuple(
        NewParameter(f"{name}.alpha", "(1)", "0.5, or `--dyt-alpha`" + ", `--dyt-attention-alpha`" * ("attn" in name))
        for name in (*SUB_LAYER_NORMS, "layer_norm")
    ),
    conflicts=needs_norms,
    no_fold="stock fairseq has LayerNorms alone",
)
def build(site: Site | None, design: StackDesign) -> NormFactory:
    """One start at attention sub-layers, another at feed-forward and on top."""
    alpha = design.options.dyt_alpha
    if site in (Site.SELF, Site.CROSS):
        alpha = design.options.dyt_attention_alpha or alpha
    return lambda width: DynamicTanh(width, alpha)


method(
    "dyt",
    title="DyT",
    paper="Zhu et al., CVPR 2025, https://arxiv.org/abs/2503.10622",
    equation=(
        r"$`o = x + F(\gamma \odot \tanh(\alpha x) + \beta)`$ (section 4), $`\alpha = 0.5`$, $`\gamma = 1`$, $`\beta "
        "= 0`$ at first; one more on top of each stack; no statistic of the batch or of a position enters"
    ),
    norm_position="pre",
    norm_type="dyt",
    base_init="fairseq",
    departures=(
        r"The released language models ([DyT](https://github.com/jiachenzhu/DyT), revision aab5dde) have no $`\beta`$ "
        r"and start $`\alpha`$ by width, larger at attention: 0.8 there and 0.2 elsewhere at 7 billion parameters, "
        r"`--dyt-attention-alpha 0.8 --dyt-alpha 0.2`. A trained scalar on the embeddings is not supported.",
        "The paper has no model for translation; cross-attention counts as attention here.",
        "DyT replaces the LayerNorms of `--norm-position`. The norms of `--layernorm-embedding`, a history and a "
        "second stream remain LayerNorms.",
    ),
)
