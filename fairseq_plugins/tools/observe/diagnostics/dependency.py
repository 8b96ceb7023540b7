"""Residual dependency: the share of each branch in a sub-layer's output. Liu et al., EMNLP 2020, figure 7.

Every stream is a sum: the embedding and all branches so far, each scaled by what residuals, LayerNorms and histories
have done to it since. A residual is linear in its inputs, and so is a LayerNorm once its division by the standard
deviation is held fixed. So each summand is propagated separately; beta_ij is the standard deviation of summand j in the
output of sub-layer i over the width, mean over the words, and a row's squares sum to one. What LayerNorms and shifts
add equally to every word is not a summand of a branch and is left out. C is that of theorem 2: a random step changes
the output of the first stack by Var[F(x, W) - F(x, W*)] = C * (sum of beta_ii squared).

Legend: K summands, T time, B batch, C width.
"""

import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.core.norm import NormPlace
from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.observe.diagnostics import results
from fairseq_plugins.tools.observe.diagnostics.batches import Batch
from fairseq_plugins.tools.observe.diagnostics.models import Subject
from fairseq_plugins.tools.observe.diagnostics.observation import Visit, recording
from fairseq_plugins.tools.observe.diagnostics.output_change import changes, outputs, random_step
from fairseq_plugins.tools.observe.diagnostics.results import Analysis, AnalysisResult, AnalysisSettings
from fairseq_plugins.tools.observe.recorder.activations import hooked
from fairseq_plugins.tools.plots import Figure, HeatMap, Line, Lines, Panel

LINEAR_IN_SUMMANDS = (nn.LayerNorm, nn.RMSNorm)
"""Norms that are linear once their divisor is given."""
TOLERANCE = 1e-3
"""Largest difference between a stream and its summands, relative to the stream's standard deviation."""


def dependency(model: Any, batch: Batch) -> dict[str, Tensor]:
    """Return beta of each stack, without dropout: ``(I, I + 1)`` for I sub-layers, column 0 the embedding.

    Raises UserError: an output is not a weighted sum of embedding and branches.
    """
    norms: dict[Any, list[Tensor]] = {
        norm: [] for _, stack in model.stacks() for norm in stack.modules() if isinstance(norm, LINEAR_IN_SUMMANDS)
    }
    seen = {norm: lambda module, inputs, output: norms[module].append(deviation(module, inputs[0])) for norm in norms}
    with torch.no_grad():
        with hooked(seen.items()), recording(model) as record:
            model.run_stacks(*batch.inputs)
        result = {}
        for name, stack in model.stacks():
            words = batch.words(name, stack.padding_idx, record.bottoms[name])
            visits = [visit for visit in record.visits if visit.sub.stack == name]
            with hooked((norm, partial(frozen, seen[-1])) for norm, seen in norms.items() if seen):
                streams = summands(stack, record.bottoms[name], visits)
                rows = [x[:-1].std(dim=-1, unbiased=False)[:, words].mean(dim=1) for x in streams]
            result[name] = torch.stack([row / row.norm() for row in rows])
    return result


def deviation(norm: Any, x: Tensor) -> Tensor:
    """Return the divisor of ``norm`` for ``x``, ``(T, B, C)``: ``(T, B, 1)``."""
    if isinstance(norm, nn.RMSNorm):
        eps = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
        return (x.pow(2).mean(dim=-1, keepdim=True) + eps).sqrt()
    return (x.var(dim=-1, unbiased=False, keepdim=True) + norm.eps).sqrt()


def frozen(divisor: Tensor, norm: Any, inputs: Any, output: Tensor) -> Tensor:
    """Hook that makes a norm linear in summands ``(K, T, B, C)``; its bias goes to the last one."""
    x = inputs[0]
    plain = isinstance(norm, nn.RMSNorm)
    result = (x if plain else x - x.mean(dim=-1, keepdim=True)) / divisor
    if norm.elementwise_affine:
        result = result * norm.weight
        if not plain:
            result[-1] += norm.bias
    return result


def summands(stack: Any, bottom: Tensor, visits: list[Visit]) -> Iterator[Tensor]:
    """Yield the summands of each sub-layer's output, ``(K, T, B, C)``: embedding, branches, and the remainder.

    Raises UserError: the summands do not add up to the output.
    """
    start = bottom.new_zeros(len(visits) + 2, *bottom.shape)
    start[0] = bottom
    states = [start]
    for _, members in groupby(enumerate(visits, start=1), key=lambda numbered: numbered[1].sub.number):
        layer_input = x = stack.history(states)
        for number, visit in members:
            sub, zero = visit.sub, x.new_zeros(1).expand_as(x)
            x = sub.residual(zero, x, layer_input).clone()
            x[number] += sub.residual(visit.branch, zero[0], zero[0])
            if NormPlace.AFTER in sub.norms:
                x = sub.residual.after_norm(sub.norms[NormPlace.AFTER](x), layer_input)
            error = float((x.sum(dim=0) - visit.output).abs().max())
            if not error <= TOLERANCE * max(float(visit.output.std()), 1e-6):
                raise UserError(
                    f"dependency: the output of {sub.name} is not a weighted sum of the embedding and the branches "
                    f"below (off by {error:.2g}), so their shares are not defined"
                )
            yield x
        states = stack.history.remember(states, x)


def run_dependency(subjects: Sequence[Subject], settings: AnalysisSettings) -> AnalysisResult:
    """Show beta_ij as heat maps, and the newest branch's share by the number of its sub-layer."""
    # beta, and Var[F(x, W) - F(x, W*)] of the first stack, over all elements.
    measured = results.each(
        subjects,
        settings,
        lambda model, batch: (
            dependency(model, batch),
            changes(model, batch, random_step, settings.seed)[-1] / outputs(model, batch)[-1].numel(),
        ),
    )
    by_label = {label: betas for label, (betas, _) in measured.items()}
    maps: list[Panel] = []
    shown: list[Sequence[Any]] = []
    lines: dict[str, list[Line]] = {stack: [] for stack in results.STACKS}
    for label, stack, beta in ((label, *item) for label, betas in by_label.items() for item in betas.items()):
        # Branches above have no value.
        values = [[v if j <= i + 1 else None for j, v in enumerate(row)] for i, row in enumerate(beta.tolist())]
        axes = ("branch j (0: the embedding)", "sub-layer i", "beta_ij")
        maps.append(HeatMap(f"{label}, {stack}", *axes, values, 0, (0.0, 1.0)))
        # beta_ii squared, the share of the newest branch in each sub-layer's output.
        share = [value**2 for value in beta.diagonal(1).tolist()]
        lines[stack].append(results.numbered(label, share))
        # A changed encoder would change the decoder's input.
        is_first = stack == next(iter(by_label[label]))
        constant = results.ratio(measured[label][1], sum(share)) if is_first else None
        shown.append((label, stack, share[0], share[len(share) // 2], share[-1], growth(share), sum(share), constant))
    curves: list[Panel] = []
    for stack, curve in lines.items():
        longest = max((len(line.points) for line in curve), default=1)
        guide = Line("1 / i", [(i, 1 / i) for i in range(2, longest + 1)], guide=True)
        axis = "sub-layer i, from the bottom"
        curves.append(Lines(stack, axis, "beta_ii squared", [*curve, guide], log_x=True, log_y=True))
    table = results.of_matrices(("sub_layer", "branch", "beta"), by_label, first=(1, 0))
    header = ("model", "stack", "beta_11^2", "middle", "top", "growth of 1 / beta_ii^2", "sum of beta_ii^2", "C")
    figures = [Figure("", "Residual dependency", maps), Figure("-newest", "Share of the newest branch", curves)]
    return AnalysisResult({"": table}, figures, header, shown)


def growth(share: Sequence[float]) -> float | None:
    """Return the growth of 1 / beta_ii^2 per sub-layer, by least squares: 0 for a constant share, 1 for 1 / i.

    Branches of one variance v over an embedding of variance w have the share v / (w + i v), so it is 1 from the start.
    """
    points = [(float(i), 1 / value) for i, value in enumerate(share, start=1) if value > 0]
    if len(points) < 2:
        return None
    return statistics.linear_regression(*zip(*points, strict=True)).slope


ANALYSIS = Analysis(
    "dependency",
    "share of each branch below in each sub-layer's output",
    "Admin Fig. 7, 8, Theorem 2",
    run_dependency,
    sentences=2,
)
