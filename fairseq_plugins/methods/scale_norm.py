"""ScaleNorm and FixNorm: activations and word vectors of a length of their own, for small corpora."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.initialisation import StackWeights, linear_maps
from fairseq_plugins.core.linear_maps import AffineMap, MatrixForm
from fairseq_plugins.core.method import Axis, NewParameter, method, part
from fairseq_plugins.core.norm import needs_norms
from fairseq_plugins.core.sub_layers import SUB_LAYER_NORMS
from fairseq_plugins.errors import flag
from fairseq_plugins.methods.shared.precision import unit
from fairseq_plugins.methods.shared.scaled_draw import draw

SHORTEST, SHORTEST_VECTOR = 1e-5, 1e-12
"""Lower clamps on lengths in the released code, of activations and of word vectors."""


class ScaleNorm(nn.Module):
    """g * x / |x|, g one scalar. Any shape ``(..., C)``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((1,), math.sqrt(width)))

    def forward(self, x: Tensor) -> Tensor:
        """Scale vectors ``(..., C)`` to the length g."""
        return unit(x, SHORTEST, self.scale)


def word_vectors(table: Tensor) -> Tensor:
    """Divide vectors ``(..., C)`` by their lengths.

    That of pads stays zero, without a gradient: where the output shares the table it would be 1e12 times the others.
    """
    return unit(table, SHORTEST_VECTOR) * (table != 0).any(dim=-1, keepdim=True)


class UnitVectors(MatrixForm, nn.Embedding):
    """Word vectors of length 1; the vector of pads stays zero."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__(len(table.weight), table.embedding_dim, table.padding_idx, _weight=table.weight.detach())
        self.weight = table.weight

    def matrix(self) -> Tensor:
        """Normalise every row, ``(V, C)``."""
        return word_vectors(self.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed ``(B, T)`` to ``(B, T, C)``."""
        return word_vectors(super().forward(tokens))


class UnitRows(AffineMap):
    """An output projection whose rows, often the word vectors, have length 1."""

    is_fixed = False

    def matrix(self) -> Tensor:
        """Normalise every row, ``(V, C)``."""
        return self.weight if self.is_fixed else word_vectors(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., C)`` to ``(..., V)``."""
        return F.linear(x, self.matrix(), self.bias)

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Normalise once: fairseq calls this before it translates with a loaded model."""
        with torch.no_grad():
            self.weight.copy_(self.matrix())
        self.is_fixed = True


part(
    Axis.NORM_TYPE,
    "scale_norm",
    summary="ScaleNorm at every place of `--norm-position` and on top: vectors of one trained length",
    parameters=tuple(
        NewParameter(f"{name}.scale", "(1)", r"$`\sqrt{C}`$") for name in (*SUB_LAYER_NORMS, "layer_norm")
    ),
    conflicts=needs_norms,
    no_fold="stock fairseq has LayerNorms alone",
)(lambda site, design: ScaleNorm)


def fix_ends(stack: Any) -> None:
    """Replace the token table of a stack, and the output projection of a decoder."""
    for name, kind in (("embed_tokens", UnitVectors), ("output_projection", UnitRows)):
        if (old := getattr(stack, name, None)) is not None:
            setattr(stack, name, kind(old))


part(
    Axis.REPARAM,
    "fix_norm",
    summary="plain matrices in the layers, and vectors of length 1 in the embedding and the output projection",
    conflicts=lambda design, config: [  # embeddings without a single table, an output without a projection
        f"--reparam fix_norm fixes the length of the rows of one table: drop {flag(name)}"
        for name in ("adaptive_softmax_cutoff", "adaptive_input")
        if getattr(config, name, None)
    ],
    ends=fix_ends,
)(lambda layer, design: None)


@part(
    Axis.INIT,
    "small",
    summary="SmallInit: matrices of attention as small as those of the feed-forward, shorter vectors under fix_norm",
)
def initialise(weights: StackWeights, design: StackDesign) -> None:
    """Draw N(0, 2 / 5C) for the matrices of an attention, N(0, 2 / (C + F)) for others; biases are 0.

    The length of a normalised vector only sets how fast it turns. In the released code its numbers are drawn evenly
    between -0.01 and 0.01; here fairseq's are brought to the same mean square, given ones multiplied by the same.
    """
    for layer in weights.layers:
        for name, linear in linear_maps(layer):
            draw(linear, 1.0 if name in ("fc1", "fc2") else math.sqrt(2 / 5), "paper")
    for vectors in (weights.embedding, weights.output):
        if isinstance(vectors, (UnitVectors, UnitRows)):
            vectors.weight.mul_(0.01 / math.sqrt(3) * math.sqrt(vectors.weight.size(1)))


method(
    "scale_norm",
    title="ScaleNorm + FixNorm",
    paper=(
        "Nguyen and Salazar, IWSLT 2019, https://arxiv.org/abs/1910.05895; Nguyen and Chiang, NAACL 2018, "
        "https://arxiv.org/abs/1710.01329"
    ),
    equation=(
        r"$`o = x + F(g\, x / \Vert x \Vert)`$ with one trained number $`g`$, $`\sqrt{d}`$ at first; one more on top "
        "of each stack; word vectors and the rows of the output projection have length 1 (FixNorm); matrices of "
        r"attention are drawn from $`\mathcal{N}(0, 2 / 5d)`$ (SmallInit)"
    ),
    norm_position="pre",
    norm_type="scale_norm",
    reparam="fix_norm",
    init="small",
    departures=(
        "The released code ([transformers_without_tears](https://github.com/tnq177/transformers_without_tears), "
        "revision c2dfaaa) draws word vectors between -0.01 and 0.01. Here fairseq's word vectors are scaled to the "
        "same mean square, and `--encoder-embed-path` by the same factor. Output biases, language vectors and words "
        "replaced by `<unk>` are not supported.",
        "`--reparam plain` leaves FixNorm out, `--norm-type layer_norm` ScaleNorm; FixNorm alone can be folded.",
        "The released code trains without warm-up (`--lr-scheduler reduce_lr_on_plateau`): the rate is 3e-4, times "
        "0.8 after 3 validations without a better BLEU, until it is below 5e-5. The gradient is clipped at 1.0, "
        "dropouts are 0.3, word dropout is 0.1, and betas are 0.9 and 0.999.",
    ),
)
