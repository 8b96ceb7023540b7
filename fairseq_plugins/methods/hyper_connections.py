"""Hyper-connections and mHC: several streams, which every sub-layer reads, mixes and writes with trained weights.

Legend: T time, B batch, C width, K streams; H the streams ``(K, C)`` of a position.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Option, Site, method, part
from fairseq_plugins.core.residual import ExtraStreams, PlainResidual, Residual, at_each_site, only_branches
from fairseq_plugins.methods.shared.precision import at_least_float32, without_autocast


def product(weights: Tensor, streams: Tensor) -> Tensor:
    """Multiply ``(T, B, K, C)`` from the left. In mixed precision streams keep float32, as a plain stream does."""
    weights = weights.type_as(streams)
    if torch.compiler.is_compiling():  # the compiler fuses sums of a few numbers, and no matrix products
        return (weights.unsqueeze(-1) * streams.unsqueeze(-3)).sum(dim=-2)
    with without_autocast(streams.device.type):
        # On a CPU torch multiplies non-contiguous matrices one by one.
        return torch.matmul(weights.expand(*streams.shape[:2], -1, -1).contiguous(), streams)


class HyperConnection(PlainResidual):
    """Reads, mixes and writes streams ``(T, B, K, C)`` by weights a ``(1, K)``, M ``(K, K)`` and w ``(K, 1)``.

    The main stream is the plain sum of all branches, which no sub-layer reads. Sub-layer ``number`` of the stack, from
    0, first reads the stream of that number, modulo K.
    """

    def __init__(self, width: int, streams: int, number: int) -> None:
        super().__init__()
        self.read_weights = nn.Parameter(torch.eye(streams)[number % streams].unsqueeze(0))
        self.mix_weights = nn.Parameter(torch.eye(streams))
        self.write_weights = nn.Parameter(torch.ones(streams))

    def weights(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return a, M and w, here the same for every word. Row i of the parameter has the weights of stream i."""
        return self.read_weights, self.mix_weights.t(), self.write_weights.unsqueeze(1)

    def pre(self, stream: Tensor, extra: Tensor) -> tuple[Tensor, Any]:
        """Mix the streams into one, and for :meth:`post` into as many, M H, with w."""
        *rows, writing = self.weights(extra)
        if torch.compiler.is_compiling():  # then nothing holds the mixed streams until they are written
            read, mixed = (product(one, extra) for one in rows)
        else:
            read, mixed = torch.split(product(torch.cat(rows, dim=-2), extra), [1, extra.size(2)], dim=2)
        return read.squeeze(2), (mixed, writing)

    def post(self, branch: Tensor, stream: Tensor, extra: tuple[Tensor, Tensor]) -> Tensor:
        """Add the branch to each of the mixed streams."""
        mixed, writing = extra
        return mixed + product(writing, branch.unsqueeze(2).type_as(mixed))


def normed_map(norm: Callable[..., Tensor], x: Tensor, matrix: Tensor) -> Tensor:
    """Return norm(x) W. Backwards it is computed again: normalised streams would take as much memory as the streams."""

    def compute(x: Tensor, matrix: Tensor) -> Tensor:
        return torch.matmul(norm(x, x.shape[-1:], eps=1e-5), matrix)

    if torch.compiler.is_compiling():  # the compiler decides what it keeps
        return compute(x, matrix)
    return checkpoint(compute, x, matrix, use_reentrant=False, preserve_rng_state=False)


def for_each_column(scales: Tensor, columns: Tensor) -> Tensor:
    """Return the scale of each column of W, ``(columns)``, by one kernel in each direction.

    ``columns`` ``(columns, scales)`` is 1 where a column has a scale, 0 elsewhere.
    """
    with without_autocast(scales.device.type):
        return torch.mv(columns.type_as(scales), scales)


class DynamicConnection(HyperConnection):
    """The same, but each stream h adds s tanh(LN(h) W) to its weights."""

    columns: Tensor

    def __init__(self, width: int, streams: int, number: int) -> None:
        super().__init__(width, streams, number)
        self.map = nn.Parameter(torch.zeros(width, streams + 2))
        self.scales = nn.Parameter(torch.full((2,), 0.01))
        self.register_buffer("columns", torch.eye(2)[[0, 1] + [0] * streams], persistent=False)

    def weights(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The columns of W: reading, writing, and what the stream gives to each."""
        change = torch.tanh(normed_map(F.layer_norm, streams, self.map))
        first = torch.cat([self.read_weights.t(), self.write_weights.unsqueeze(1), self.mix_weights], dim=1)
        joint = torch.addcmul(first, change.type_as(streams), for_each_column(self.scales, self.columns))
        reading, writing, mixing = torch.split(joint, [1, 1, streams.size(2)], dim=-1)
        return reading.transpose(-1, -2), mixing.transpose(-1, -2), writing


class ManifoldConnection(HyperConnection):
    """mHC: a = sigmoid, w = 2 sigmoid, M doubly stochastic, of s (RMSNorm(H) W) + b each, with H as one vector."""

    columns: Tensor

    def __init__(self, width: int, streams: int, number: int) -> None:
        PlainResidual.__init__(self)
        one, diagonal = 2 * torch.eye(streams)[[number % streams]] - 1, 8 * torch.eye(streams) - 8
        self.bias = nn.Parameter(torch.cat([one, one, diagonal]))
        self.map = nn.Parameter(torch.zeros(streams * width, self.bias.numel()))
        self.scales = nn.Parameter(torch.full((3,), 0.01))
        kinds = [0] * streams + [1] * streams + [2] * streams**2
        self.register_buffer("columns", torch.eye(3)[kinds], persistent=False)

    def weights(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The columns of W: reading, writing and mixing."""
        count, columns = streams.size(2), at_least_float32(normed_map(F.rms_norm, streams.flatten(2), self.map))
        joint = for_each_column(self.scales, self.columns) * columns + self.bias.flatten()
        gates, mix = torch.split(joint, [2 * count, count * count], dim=-1)
        read, write = torch.split(gates.sigmoid().type_as(streams), count, dim=-1)
        mix = doubly_stochastic(mix.view(*mix.shape[:2], count, count)).type_as(streams)
        return read.unsqueeze(-2), mix, 2 * write.unsqueeze(-1)


def doubly_stochastic(logits: Tensor) -> Tensor:
    """Divide exp of ``(..., K, K)`` by the sums of its columns, then of its rows, again and again (Sinkhorn)."""
    if torch.compiler.is_compiling():
        torch._dynamo.graph_break(msg="compiled, Sinkhorn's algorithm has more kernels")
    # The batch is last: reducing a short trailing dimension takes ten times as long.
    side_by_side = logits.flatten(0, -3).permute(1, 2, 0).contiguous()
    for _ in range(20):
        side_by_side = side_by_side.log_softmax(dim=0).log_softmax(dim=1)
    return side_by_side.exp().permute(2, 0, 1).view_as(logits)


class CopiedStreams(ExtraStreams):
    """K copies of the embedding ``(T, B, K, C)``; their sum is the output of the layers."""

    def __init__(self, streams: int) -> None:
        super().__init__()
        self.streams = streams

    def start(self, x: Tensor) -> Tensor:
        """Return K copies of the embedding ``(T, B, C)``."""
        return x.unsqueeze(2).repeat(1, 1, self.streams, 1)

    def finish(self, x: Tensor, extra: Tensor) -> Tensor:
        """Return the sum of the streams, ``(T, B, C)``."""
        return extra.sum(dim=2)


def build(
    kind: type[HyperConnection], streams: int, sites: tuple[Site, ...], depth: int, width: int
) -> dict[Site, Residual]:
    """Return a ``kind`` for each of ``sites``, numbered through the stack: ``depth`` counts layers from 1."""
    return {site: kind(width, streams, number) for number, site in enumerate(sites, (depth - 1) * len(sites))}


@part(
    Axis.RESIDUAL,
    "hyper",
    summary="several streams; trained weights say what a branch reads of each, how they mix and what each gets",
    options=(
        Option("hyper_streams", 4, "number of streams", least=1),
        Option("hyper_weights", "dynamic", "they depend on the streams, or do not", ("dynamic", "static")),
    ),
    parameters=at_each_site("read_weights", "(1, 4)", "$`1`$ for one of `--hyper-streams`, 0 for the others")
    + at_each_site("mix_weights", "(4, 4)", "$`1`$ on the diagonal, 0 elsewhere")
    + at_each_site("write_weights", "(4)", "1")
    + at_each_site("map", "(C, 6)", "0; not with `--hyper-weights static`")
    + at_each_site("scales", "(2)", "0.01; not with `--hyper-weights static`"),
    conflicts=only_branches,
    no_fold="stock fairseq has one stream",
    extra_streams=lambda design: CopiedStreams(design.options.hyper_streams),
)
def hyper(sites: tuple[Site, ...], depth: int, design: StackDesign) -> dict[Site, Residual]:
    """Build the hyper-connections of one layer."""
    kind = DynamicConnection if design.options.hyper_weights == "dynamic" else HyperConnection
    return build(kind, design.options.hyper_streams, sites, depth, design.width)


part(
    Axis.RESIDUAL,
    "mhc",
    summary="several streams, mixed by trained doubly stochastic matrices",
    options=(Option("mhc_streams", 4, "number of streams", least=1),),
    parameters=at_each_site(
        "bias", "(6, 4)", "$`1`$ where a stream is read and written, -1 for others; mixing 0 and -8"
    )
    + at_each_site("map", "(4C, 24)", "0")
    + at_each_site("scales", "(3)", "0.01"),
    conflicts=only_branches,
    no_fold="stock fairseq has one stream",
    extra_streams=lambda design: CopiedStreams(design.options.mhc_streams),
)(lambda sites, depth, design: build(ManifoldConnection, design.options.mhc_streams, sites, depth, design.width))


method(
    "hyper_connections",
    title="Hyper-connections",
    paper="Zhu et al., ICLR 2025, https://arxiv.org/abs/2409.19606",
    equation=(
        r"$`h = a H`$, $`H' = M H + w^\top F(\mathrm{LN}(h))`$ for $`K = 4`$ streams $`H`$ (algorithm 2); each stream "
        r"adds $`s \tanh(\mathrm{LN}(H_i) W)`$ to its weights, $`W = 0`$ and $`s = 0.01`$ at first; $`a`$ is one "
        "stream, the number of the sub-layer modulo $`K`$, $`M`$ the identity and $`w = 1`$ at first; the sum of the "
        "streams goes through the LayerNorm on top"
    ),
    norm_position="pre",
    residual="hyper",
    base_init="fairseq",
    departures=(
        "The authors' code could not be read. The equations agree with "
        "[hyper-connections](https://github.com/lucidrains/hyper-connections), revision 4775103, which has an "
        "RMSNorm. The LayerNorm of the streams has no gain and no bias here, as in the text's OLMo models.",
        r"At first the text scales the last matrix of each branch by a factor of $`\sqrt{K}`$, so that the sum of the "
        r"streams keeps its deviation (section 4). The sum would need a division by this factor, not a product, so "
        r"the factor is left out.",
        r"The text has no weight decay on $`a`$, $`M`$ and $`w`$ as far as they do not depend on the streams. Here "
        "they decay as all parameters do.",
    ),
)
method(
    "mhc",
    title="mHC",
    paper="Xie et al., 2025, https://arxiv.org/abs/2512.24880",
    equation=(
        r"$`h = a H`$, $`H' = M H + w^\top F(\mathrm{LN}(h))`$ for $`K = 4`$ streams $`H`$, $`M`$ doubly stochastic "
        r"(section 4); $`a = \sigma(\cdot)`$, $`w = 2 \sigma(\cdot)`$, $`M`$ by 20 steps of Sinkhorn's iteration, "
        r"each of $`s\, \mathrm{RMSNorm}(\mathrm{vec}\, H) W + b`$, $`W = 0`$ and $`s = 0.01`$ at first"
    ),
    norm_position="pre",
    residual="mhc",
    base_init="fairseq",
    departures=(
        "The text does not give the starts of $`b`$ and $`W`$. They come from an independent implementation "
        "([mhc-lite](https://github.com/FFTYYY/mhc-lite), revision ea19775): 1 for one stream and -1 for the others "
        "in $`a`$ and $`w`$, 0 on the diagonal and -8 elsewhere in $`M`$. There RMSNorm has a gain before $`W`$, and "
        "$`M`$ is transposed: the last step of the iteration makes the sums over outputs exact, not the sums over "
        "inputs.",
        "The streams begin as copies of the embedding, and end in their plain sum. The authors' DeepSeek-V4 (in "
        "[transformers](https://github.com/huggingface/transformers), revision 0197608) ends in a sum by trained "
        r"sigmoids like $`a`$; to $`a`$, $`M`$ and the sums of Sinkhorn's iteration it adds an $`\epsilon`$.",
    ),
)
