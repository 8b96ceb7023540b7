"""Attention residuals: every sub-layer reads a softmax mixture of the outputs of the sub-layers, or blocks, below it.

Legend: T time, B batch, C width, K finished blocks; v_0 is the embedding, v_i the sum of the branches of block i.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, NewParameter, Option, Site, method, part
from fairseq_plugins.core.residual import ExtraStreams, Residual, at_each_site, only_branches
from fairseq_plugins.methods.shared.precision import at_least_float32, inverse_rms, without_autocast


def mixture(query: Tensor, *parts: Tensor) -> Tensor:
    """Mix all blocks, which are in one tensor ``(K, T, B, C)`` or in several; ``query`` is w, ``(C)``."""
    with without_autocast(query.device.type):
        if torch.is_grad_enabled():
            return _Mixture.apply(query.type_as(parts[0]), *parts)  # type: ignore[no-untyped-call]
        return mixed(query.type_as(parts[0]), *parts)[0]


def mixed(query: Tensor, *parts: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the result of :func:`mixture`, then weights, logits and 1 / RMS(v), ``(K, T, B, 1)`` in float32."""
    products = at_least_float32(joined([torch.matmul(v, query) for v in parts])).unsqueeze(-1)
    scales = joined([inverse_rms(v) for v in parts])
    logits = products * scales
    exact = torch.softmax(logits, dim=0)
    weights = torch.split(exact.type_as(parts[0]), [*map(len, parts)])
    first, *others = ((weight * v).sum(dim=0) for weight, v in zip(weights, parts, strict=True))
    return sum(others, start=first), exact, logits, scales


def joined(parts: list[Tensor]) -> Tensor:
    """Return the parts in one tensor."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


class _Mixture(torch.autograd.Function):
    """:func:`mixed` with its gradient written out: three passes over the blocks, where autograd takes a dozen."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, *parts: Tensor) -> Tensor:
        output, *factors = mixed(query, *parts)
        ctx.save_for_backward(query, *factors, *parts)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        query, weights, logits, scales, *parts = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody wants second derivatives
            given = query, *parts
            return torch.autograd.grad(mixed(*given)[0], given, gradients, create_graph=True)
        gradient = at_least_float32(*gradients)
        of_weights = joined([(v * gradient).sum(dim=-1, keepdim=True) for v in parts])
        turns = torch._softmax_backward_data(of_weights, weights, 0, weights.dtype) * scales
        factors = weights, turns, turns * logits * scales
        of_parts, of_query = [], []
        for v, weight, turn, shrink in zip(parts, *(torch.split(f, [*map(len, parts)]) for f in factors), strict=True):
            of_part = (weight * gradient).addcmul_(turn, query).addcmul_(shrink, v, value=-1 / len(query))
            of_parts.append(of_part.type_as(v))
            of_query.append(torch.mv(v.reshape(-1, len(query)).t(), turn.reshape(-1).type_as(v)))
        return sum(of_query[1:], start=of_query[0]), *of_parts


class _Append(torch.autograd.Function):
    """``torch.cat([blocks, block])``, in the memory of ``blocks`` where there is room behind them.

    Autograd keeps the blocks that each sub-layer reads; so each block is in memory once, and not once a sub-layer. No
    compiler knows such a write, and ``torch.cat`` would need memory for each sub-layer: the layers are not compiled.
    """

    @staticmethod
    def forward(ctx: Any, blocks: Tensor, block: Tensor) -> Tensor:
        longer = (len(blocks) + 1, *block.shape)
        if blocks.untyped_storage().nbytes() < math.prod(longer) * blocks.element_size():
            room = blocks.new_empty(2 * longer[0], *block.shape)
            room[: len(blocks)] = blocks
            blocks = room
        # No saved view covers this slot, so the write is hidden from autograd.
        with _unsafe_preserve_version_counter(blocks):
            appended = blocks.as_strided(longer, blocks.stride(), 0)
            appended[-1] = block
        return appended.data  # a tensor of its own for autograd

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        return gradients[0][:-1], gradients[0][-1]


class AttentionResidual(Residual):
    """Adds up the branches of a block in the stream; the finished blocks are the extra streams ``(K, T, B, C)``.

    The sub-layer that ``begins`` a block is its first; the ``lowest`` of the stack has nothing to choose from.
    """

    def __init__(self, width: int, begins: bool, lowest: bool) -> None:
        super().__init__()
        self.query = None if lowest else nn.Parameter(torch.zeros(width))
        self.begins = begins

    def pre(self, stream: Tensor, extra: Tensor) -> tuple[Tensor, Any]:
        """Mix the blocks so far into the input of the branch."""
        if self.begins:
            # All blocks are then in one tensor, and one operation reads them.
            extra = _Append.apply(extra, stream)  # type: ignore[no-untyped-call]
        if self.query is None:
            return stream, extra
        return mixture(self.query, *((extra,) if self.begins else (extra, stream.unsqueeze(0)))), extra

    def forward(self, branch: Tensor, stream: Tensor, layer_input: Tensor) -> Tensor:
        """Begin a block with the branch, or add it to the block."""
        # In mixed precision the stream is in float32, a branch is not.
        return branch.type_as(stream) if self.begins else stream + branch


class Blocks(ExtraStreams):
    """Finished blocks, ``(K, T, B, C)``: none below the first layer; :meth:`finish` mixes them on top."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(width))

    def start(self, x: Tensor) -> Tensor:
        """Return no block, ``(0, T, B, C)``."""
        return x.new_empty(0, *x.shape)

    def finish(self, x: Tensor, extra: Tensor) -> Tensor:
        """Return the mixture of all blocks, the output of the stack, ``(T, B, C)``."""
        return mixture(self.query, extra, x.unsqueeze(0))


@part(
    Axis.RESIDUAL,
    "attention_residual",
    summary="each branch reads a softmax mixture of the outputs of all sub-layers below, or of blocks of them",
    options=(
        Option("attention_residual_blocks", 0, "most blocks of a stack, of equal size; 0: one a sub-layer", least=0),
        Option("attention_residual_begin", "layer", "where a block may begin", ("layer", "sub_layer")),
    ),
    parameters=(
        *at_each_site("query", "(C)", "0; none in the first sub-layer of a stack"),
        NewParameter("side_stream.query", "(C)", "0"),
    ),
    conflicts=only_branches,
    no_fold="stock fairseq has no sub-layer that reads more than the one below it",
    extra_streams=lambda design: Blocks(design.width),
)
def build(sites: tuple[Site, ...], depth: int, design: StackDesign) -> dict[Site, Residual]:
    """Return a layer's residual connections. All blocks but the last have equal numbers of layers, or sub-layers."""
    blocks, below = design.options.attention_residual_blocks, (depth - 1) * len(sites)
    unit = len(sites) if design.options.attention_residual_begin == "layer" else 1
    size = unit * math.ceil(design.layers * len(sites) / unit / blocks) if blocks else 1
    return {site: AttentionResidual(design.width, n % size == 0, n == 0) for n, site in enumerate(sites, below)}


method(
    "attention_residuals",
    title="Attention residuals",
    paper="Kimi Team, 2026, https://arxiv.org/abs/2603.15031",
    equation=(
        r"$`h_l = \sum_{i < l} \mathrm{softmax}_i(w_l \cdot \mathrm{RMSNorm}(v_i))\, v_i`$ is the input of sub-layer "
        "$`l`$ and, with one more $`w`$, the output of the stack (section 3); $`v_0`$ is the embedding, $`v_i = "
        r"F_i(\mathrm{LN}(h_i))`$ or the sum of the $`F`$ of a block so far, and $`w_l = 0`$ at first"
    ),
    norm_position="pre",
    residual="attention_residual",
    base_init="fairseq",
    departures=(
        "Each sub-layer is a block of its own. The time of the mixtures then grows with the square of the depth; the "
        "text recommends about eight blocks for large models, `--attention-residual-blocks 8`. Blocks begin at whole "
        "layers, as in the authors' pseudo-code; checkpoints of earlier revisions with blocks need "
        "`--attention-residual-begin sub_layer`. A block whose first layer LayerDrop leaves out joins the block below.",
        "The authors' pseudo-code has a gain in each RMSNorm, which $`w_l`$ makes up for here.",
        "The paper is about language models; each stack of a translation model mixes its own outputs.",
    ),
)
