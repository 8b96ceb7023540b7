"""DeepScaleLM: stream and branch are weighted so that the variance of their sum stays 1, and so are the first weights.

The first weights keep the variance of every branch at 1. That of values and outputs needs the correlation r of the
inputs of an attention, which :func:`correlations` follows through the stack as the released code does.
"""

import math
from typing import Any

from torch import nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.initialisation import StackWeights, linear_maps
from fairseq_plugins.core.method import Axis, Option, Site, method, part
from fairseq_plugins.core.residual import ConstantSum, Residual
from fairseq_plugins.core.sub_layers import sites_of
from fairseq_plugins.errors import flag

START = 0.221
"""Correlation of the embeddings of two tokens without dropout, in the released code (``sigma_attn_v_out``)."""
TABLES = 2
"""Tables whose rows are added up below the first layer: tokens and positions."""


def branch_share(design: StackDesign, layers: int, sub_layers: int) -> float | None:
    """Return beta^2, the share of a branch in the variance of a sum, at most a half; None for another residual."""
    if design.choice(Axis.RESIDUAL) != "deepscale":
        return None
    return min(0.5, float(design.options.deepscale_k) / (layers * sub_layers))


def correlations(
    sites: tuple[Site, ...],
    layers: int,
    dropout: float,
    share: float | None,
    source: float = 0.0,
    embedding_dropout: float | None = None,
) -> tuple[list[dict[Site, float]], float]:
    """Follow the correlation of the stream at two positions.

    Args:
        sites: sub-layers of a layer.
        layers: their number.
        dropout: rate of the dropout of branches.
        share: beta^2, or None for a plain sum.
        source: correlation of the encoder's outputs, to which the cross-attention attends.
        embedding_dropout: rate of the dropout of embeddings; by default that of branches, as in the paper.

    Returns:
        what each attention of each layer sees; the correlation above the last layer.
    """
    keep, lose = (1.0, 1.0) if share is None else (1 - share, share)
    now, variance = START * (1 - (dropout if embedding_dropout is None else embedding_dropout)), 1.0
    seen: list[dict[Site, float]] = []
    for _ in range(layers):
        seen.append({})
        for site in sites:
            if site is Site.FFN:
                rectified = now + (math.sqrt(1 - now**2) - now * math.acos(now)) / math.pi
                branch = (1 - dropout) * rectified
            else:
                seen[-1][site] = source if site is Site.CROSS else now
                branch = 1 - dropout
            now = (keep * now * variance + lose * branch) / (keep * variance + lose)
            variance = keep * variance + lose
    return seen, now


@part(
    Axis.RESIDUAL,
    "deepscale",
    summary="lambda * stream + beta * branch, two constants whose squares add up to 1",
    options=(Option("deepscale_k", 2.0, "beta^2 times the number of sub-layers; beta^2 is at most 0.5", least=1e-6),),
    no_fold="stock fairseq has no factor of the stream",
)
def build(sites: tuple[Site, ...], depth: int, design: StackDesign) -> dict[Site, Residual]:
    """The same constants everywhere in a stack."""
    share = branch_share(design, design.layers, len(sites))
    assert share is not None
    return {site: ConstantSum(math.sqrt(1 - share), math.sqrt(share)) for site in sites}


def draws_tables(design: StackDesign, config: Any) -> list[str]:
    """Refuse vectors from a file, which the draw would replace."""
    given = [name for name in ("encoder_embed_path", "decoder_embed_path") if getattr(config, name, None)]
    return [f"--init deepscale draws the embeddings: it cannot be combined with {flag(name)}" for name in given]


@part(
    Axis.INIT,
    "deepscale",
    summary="normal draws that keep the variance of every branch at 1; biases are 0",
    conflicts=draws_tables,
)
def initialise(weights: StackWeights, design: StackDesign) -> None:
    """Draw queries, keys, values, outputs, the feed-forward and the token table; other maps stay.

    With width d, inner width f and dropout p: variance 1 / d for queries and keys, sqrt((1 - p) / r) / d for values and
    outputs, sqrt(2 (1 - p) / (d f)) for both matrices of the feed-forward, (1 - p) / 2 for an embedding after its
    factor sqrt(d).
    """
    dropout = float(weights.layers[0].dropout_module.p)
    # A diagnosis draws the lowest layer of a deep model alone.
    for layer, seen in zip(weights.layers, _seen(design, sites_of(weights.layers[0]), dropout), strict=False):
        variances = {"fc1": math.sqrt(2 * (1 - dropout) / (design.width * design.ffn_width))}
        variances["fc2"] = variances["fc1"]
        for site, correlation in seen.items():
            of_values = math.sqrt((1 - dropout) / correlation) / design.width
            variances |= {f"{site.value}.{name}": 1 / design.width for name in ("q_proj", "k_proj")}
            variances |= {f"{site.value}.{name}": of_values for name in ("v_proj", "out_proj")}
        for name, linear in linear_maps(layer):
            if name in variances:
                nn.init.normal_(linear.weight, std=math.sqrt(variances[name]))
                if linear.bias is not None:
                    nn.init.zeros_(linear.bias)
    if weights.embedding is not None:
        _draw_tables(weights.embedding, (1 - design.embedding_dropout) / TABLES / design.width)


def _seen(design: StackDesign, sites: tuple[Site, ...], dropout: float) -> list[dict[Site, float]]:
    """Return the correlations in the layers of a stack; a decoder's begin above the encoder."""
    below, share = 0.0, branch_share(design, design.layers, len(sites))
    if Site.CROSS in sites:
        encoder = design.below or design
        places, layers = (Site.SELF, Site.FFN), design.encoder_layers
        shared = branch_share(encoder, layers, len(places))
        _, below = correlations(places, layers, dropout, shared, embedding_dropout=encoder.embedding_dropout)
    return correlations(sites, design.layers, dropout, share, below, design.embedding_dropout)[0]


def _draw_tables(embedding: nn.Module, variance: float) -> None:
    """Draw token tables; the row of pads stays zero."""
    for module in embedding.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=math.sqrt(variance))
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight[module.padding_idx])


method(
    "deepscale",
    title="DeepScaleLM",
    paper="Kedia et al., ICML 2024, https://arxiv.org/abs/2403.09635",
    equation=(
        r"$`o = \lambda x + \beta F(\mathrm{LN}(x))`$ with $`\beta^2 = 2 / n`$ for $`n`$ sub-layers in the stack and "
        r"$`\lambda^2 = 1 - \beta^2`$; one more LayerNorm on top; matrices are drawn from normal distributions, "
        r"queries and keys of variance $`1 / d`$, values and outputs of $`\sqrt{(1 - p) / r} / d`$ with dropout $`p`$ "
        r"and the correlation $`r`$ of the inputs, feed-forward of $`\sqrt{2 (1 - p) / (d f)}`$ with its inner width "
        "$`f`$, embeddings of $`(1 - p) / 2`$"
    ),
    norm_position="pre",
    residual="deepscale",
    init="deepscale",
    departures=(
        "The paper was not read; constants and the recursion of $`r`$ are those of the released code "
        "([TranformersGetStable](https://github.com/akhilkedia/TranformersGetStable), revision 7f48e64), which has "
        r"$`\beta^2 = 0.005`$ for 192 layers: `--deepscale-k` 2 for their 384 sub-layers, 1 for layers.",
        r"$`\beta^2`$ is at most 0.5 here, so that stacks of one layer keep their stream.",
        r"The released code has a variance of $`\sqrt{(1 - p) / 2} / d`$ in the feed-forward, which is this one at "
        "$`f = 4 d`$.",
        "The released Post-LN model has a LayerNorm on the embedding: `--norm-position post --layernorm-embedding`.",
        "The released code is an encoder. In a decoder each attention is followed as theirs; what "
        "cross-attention sees is the correlation above the encoder's last layer.",
        "BERT adds up three tables of embeddings, so the released code has $`(1 - p) / 3`$. Here there are two "
        "tables. Positions keep fairseq's values. The released code scales the input of an output layer that shares "
        "the table, so that logits have variance 1; here they have $`(1 - p) / 2`$.",
        "DeepScaleLM works with `--norm-position post` as well. Maps of attentions other than softmax attention keep "
        "their base initialisation.",
    ),
)
