"""NormFormer: Pre-LN with a factor for each head, a norm on the output of attention and one inside the feed-forward."""

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.core.attention import Attention, AttentionPlan
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.linear_maps import MapWith, call_maps
from fairseq_plugins.core.method import Axis, NewParameter, Option, Site, method, part
from fairseq_plugins.core.norm import NormPlace, NormPlaces, layer_norm, layer_norm_parameters, stock_top_norm
from fairseq_plugins.core.residual import PlainResidual, Residual


class HeadScale(nn.Module):
    """One trained factor for each head. Shapes ``(..., C)``."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(heads))

    def forward(self, x: Tensor) -> Tensor:
        """Multiply the C / H numbers of a head by its factor."""
        return x * self.scale.repeat_interleave(x.size(-1) // self.scale.numel())


class ResScale(Residual):
    """scale * stream + branch, one trained factor for each dimension. Shapes ``(T, B, C)``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, branch: Tensor, stream: Tensor, layer_input: Tensor) -> Tensor:
        """Scale the stream and add the branch."""
        return torch.addcmul(branch, self.scale, stream)

    def stream_scale(self) -> Tensor | None:
        """Return the factors of the stream, ``(C)``."""
        return self.scale


@part(
    Axis.NORM_POSITION,
    "normformer",
    summary="LayerNorm before the branch, one more on the branch of attention and inside the feed-forward, one on top",
    top=lambda design: stock_top_norm,
    parameters=layer_norm_parameters("self_attn_branch_norm", "encoder_attn_branch_norm")
    + layer_norm_parameters("fc2.norm", shape="(F)"),
    no_fold="stock fairseq has these LayerNorms in some layers only, and no architecture that turns them on",
)
def norms(site: Site, depth: int, design: StackDesign) -> NormPlaces:
    """The second norm of a sub-layer is inside the feed-forward, and behind an attention."""
    return {NormPlace.BEFORE: layer_norm, NormPlace.INSIDE if site is Site.FFN else NormPlace.BRANCH: layer_norm}


@part(
    Axis.ATTENTION,
    "head_scale",
    summary="softmax attention with a trained factor for each head",
    options=(Option("head_scale_at", "heads", "factors multiply heads, or pieces of the output", ("heads", "output")),),
    parameters=tuple(
        NewParameter(f"{site.value}.out_proj.heads.scale", "(H)", "1") for site in (Site.SELF, Site.CROSS)
    ),
    no_fold="stock fairseq has no factors of heads in its architectures",
)
def build(depth: int, design: StackDesign) -> AttentionPlan:
    """Stock attention with a :class:`HeadScale` at its output map, the same in self- and cross-attention."""
    inside = design.options.head_scale_at == "heads"

    def make(*arguments: Any, **options: Any) -> nn.Module:
        attention = Attention(*arguments, **options)
        attention.out_proj = MapWith(attention.out_proj, "heads", HeadScale(attention.num_heads), inside)
        call_maps(attention)
        return attention

    return AttentionPlan(encoder_self=make, decoder_self=make, cross=make)


@part(
    Axis.RESIDUAL,
    "res_scale",
    summary="stream + branch; at the feed-forward, the stream times a trained factor for each dimension",
    parameters=(NewParameter("ffn_residual.scale", "(C)", "1"),),
    no_fold="stock fairseq has no factor of the stream in its architectures",
)
def residuals(sites: tuple[Site, ...], depth: int, design: StackDesign) -> dict[Site, Residual]:
    """Build the residual connections of ResScale, section 2.3."""
    return {site: ResScale(design.width) if site is Site.FFN else PlainResidual() for site in sites}


method(
    "normformer",
    title="NormFormer",
    paper="Shleifer et al., 2021, https://arxiv.org/abs/2110.09456",
    equation=(
        r"$`y = x + \mathrm{LN}([g_1 h_1; \dots; g_H h_H]\, W^O)`$ with $`h_i`$ the heads of an attention of "
        r"$`\mathrm{LN}(x)`$, $`o = y + \mathrm{LN}(\mathrm{relu}(\mathrm{LN}(y) W_1 + b_1))\, W_2 + b_2`$ (section "
        "2); one more LayerNorm on top of each stack"
    ),
    norm_position="normformer",
    attention="head_scale",
    base_init="fairseq",
    departures=(
        "The equations are recalled and agree with a summary; the paper itself was not read again.",
        "The released code is fairseq's own `scale_heads`, `scale_attn`, `scale_fc` and `scale_resids` in the layers "
        "of a decoder. The released factors multiply the output of attention behind $`W^O`$, cut into as many pieces "
        "as there are heads: `--head-scale-at output`. The released norm on attention is before the dropout; here, as "
        "under `--norm-position branch`, the dropout is a part of the branch.",
        "The paper's smaller models also scale the stream at the feed-forward: `--residual res_scale`.",
        "Cross-attention has the norm and the factors of self-attention here; in fairseq's layers it has neither.",
    ),
)
