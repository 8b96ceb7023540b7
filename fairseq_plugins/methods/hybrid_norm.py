"""HybridNorm: norms on queries, keys and values instead of one before attention, and a norm after its sum."""

from fairseq_plugins.core.attention import head_norms, plan_with_normed_heads
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Site, method, part
from fairseq_plugins.core.norm import NormPlace, NormPlaces, layer_norm, stock_top_norm


@part(
    Axis.NORM_POSITION,
    "hybrid",
    summary="LayerNorm after the sum of each attention, none at the feed-forward, one on top",
    top=lambda design: stock_top_norm,
    no_fold="stock fairseq has the same place for the LayerNorms of all sub-layers",
)
def norms(site: Site, depth: int, design: StackDesign) -> NormPlaces:
    """Return the place after each attention's sum. Its norm also normalises the feed-forward sub-layer's stream."""
    return {} if site is Site.FFN else {NormPlace.AFTER: layer_norm}


part(
    Axis.ATTENTION,
    "qkv_norm",
    summary="softmax attention with a norm on queries, keys and values of each head, the norm module of the stack",
    parameters=head_norms("q_proj", "k_proj", "v_proj"),
    no_fold="stock fairseq has no norm on queries, keys and values",
)(lambda depth, design: plan_with_normed_heads(("q_proj", "k_proj", "v_proj"), design))


method(
    "hybrid_norm",
    title="HybridNorm",
    paper="Zhuo et al., 2025, https://arxiv.org/abs/2503.04598",
    equation=(
        r"$`y = \mathrm{norm}(x + \mathrm{MHA}(\mathrm{norm}(q), \mathrm{norm}(k), \mathrm{norm}(v)))`$, $`o = y + "
        r"\mathrm{FFN}(y)`$, every norm RMSNorm; one more on top of each stack"
    ),
    norm_position="hybrid",
    norm_type="rms_norm",
    attention="qkv_norm",
    base_init="fairseq",
    departures=(
        "HybridNorm*, whose first layer has a norm before its attention and a Pre-LN feed-forward, is not supported.",
        "The paper is about language models. A cross-attention has the same norms here as a self-attention; its keys "
        "and values come from the encoder's output, below which there is the norm on top.",
        "The released code ([HybridNorm](https://github.com/BryceZhuo/HybridNorm), revision f0dd605) draws weights of "
        "standard deviation 0.01398, divided by the root of twice the number of layers for the outputs of attention "
        "and feed-forward. Here the default is `--base-init fairseq`.",
        "All heads of an attention share one gain, as in the released code.",
    ),
)
