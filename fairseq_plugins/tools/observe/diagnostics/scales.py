"""Weights of branches and streams: omega (Liu et al., EMNLP 2020), alpha (Bachlechner et al., UAI 2021,
figure 6), and the weights of a history (Wang et al., ACL 2019).

No weight is read by name: residual connections and histories without their LayerNorms are linear.
"""  # noqa: D205

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_plugins.core.history import mixing_weights
from fairseq_plugins.core.norm import NormPlace
from fairseq_plugins.core.sub_layers import sub_layers
from fairseq_plugins.tools.observe.diagnostics import results
from fairseq_plugins.tools.observe.diagnostics.models import Subject
from fairseq_plugins.tools.observe.diagnostics.results import STACKS, Analysis, AnalysisResult, AnalysisSettings
from fairseq_plugins.tools.observe.recorder.activations import residual_weights
from fairseq_plugins.tools.plots import Figure, HeatMap, Lines, Panel

DEAD = 0.01
"""Below this absolute weight a branch adds almost nothing: its gate is dead."""
MOST_NAMED = 8


def dead_gates(label: str, dead: Sequence[str], gates: int, when: str = "") -> list[str]:
    """Return a line that names the first dead gates, or nothing."""
    if not dead:
        return []
    named = ", ".join(dead[:MOST_NAMED]) + (f" and {len(dead) - MOST_NAMED} more" if len(dead) > MOST_NAMED else "")
    return [f"{label}: {len(dead)} of {gates} gates dead{when} (branch weighted by less than {DEAD}): {named}"]


class Scale(NamedTuple):
    """Weights at one residual connection; means over the width, and the smallest and largest of the stream's.

    ``branch_size`` is the mean of the absolute weights of the branch. Layers count from 0.
    """

    stack: str
    layer: int
    site: str
    branch: float
    stream: float
    stream_least: float
    stream_most: float
    layer_input: float
    branch_size: float


@torch.no_grad()
def scales(model: Any) -> list[Scale]:
    """Return the scales of every residual connection, the encoder's first."""
    measured = []
    for sub in sub_layers(model):
        branch, stream, layer_input = residual_weights(sub, torch.empty(0), sub.layer.embed_dim)
        if NormPlace.AFTER in sub.norms:
            # A connection after the norm, the only one there.
            zeros = torch.zeros(1, 1, sub.layer.embed_dim)
            layer_input = layer_input + sub.residual.after_norm(zeros, zeros + 1).flatten()
        values = (branch.mean(), stream.mean(), stream.min(), stream.max(), layer_input.mean(), branch.abs().mean())
        measured.append(Scale(sub.stack, sub.number, sub.site.value, *map(float, values)))
    return measured


def mixtures(model: Any) -> dict[str, Tensor]:
    """Return by stack the weight of each state in the input of each layer, ``(L + 1, L + 1)``.

    State 0 is the embedding, state k the output of layer k - 1; the last row is the output of the stack. A plain stack,
    which reads only the layer below, is left out.
    """
    tables = {name: mixing_weights(stack) for name, stack in model.stacks()}
    return {name: table for name, table in tables.items() if not torch.equal(table, torch.eye(len(table)))}


class Number(NamedTuple):
    """One number of a trained tensor, by its place in it when flattened, from 0."""

    parameter: str
    number: int
    value: float


def numbers(model: Any) -> list[Number]:
    """Return the trained tensors that are as wide neither as the model nor as a head: factors of mixtures, gains."""
    return [
        Number(f"{name}.{parameter}", *item)
        for name, stack in model.stacks()
        for parameter, tensor in stack.named_parameters()
        if max(tensor.shape, default=0) < stack.design.width // stack.design.heads
        if not parameter.startswith("history.")
        # In a model without extra streams, these are the weights of the branch and the stream.
        if stack.side_stream is not None or "_residual." not in parameter
        for item in enumerate(tensor.flatten().tolist())
    ]


def run_scales(subjects: Sequence[Subject], settings: AnalysisSettings) -> AnalysisResult:
    """Show the weights of branches and streams, and of histories and other mixtures if there are any."""
    parts = (scales, mixtures, numbers, sub_layers)
    every = results.each(subjects, settings, lambda model, batch: [part(model) for part in parts])
    by_label: dict[str, list[Scale]] = {label: measured[0] for label, measured in every.items()}
    mixed: dict[str, dict[str, Tensor]] = {label: measured[1] for label, measured in every.items() if measured[1]}
    others: dict[str, list[Number]] = {label: measured[2] for label, measured in every.items() if measured[2]}
    panels: list[Panel] = []
    for column, stack in itertools.product(("stream", "branch"), STACKS):
        lines = [
            results.numbered(label, [getattr(scale, column) for scale in measured if scale.stack == stack])
            for label, measured in by_label.items()
        ]
        axes = (results.BY_SUB_LAYER, "mean over the width")
        panels.append(Lines(f"{stack}: weight of the {column}", *axes, lines))
    tables = {"": results.of_records(by_label)}
    figures = [Figure("", "Weights at the residual connections", panels)]
    if mixed:
        tables["-history"] = results.of_matrices(("layer", "of", "weight"), mixed, first=(0, 0))
        maps: list[Panel] = []
        cells = ("output of layer (0: the embedding)", "input of layer", "weight")
        for label, stack, table in ((label, *item) for label, stacks in mixed.items() for item in stacks.items()):
            # States above do not exist.
            values = [[*row[: layer + 1], *[None] * len(row[layer + 1 :])] for layer, row in enumerate(table.tolist())]
            maps.append(HeatMap(f"{label}, {stack}", *cells, values, 0, (min(0.0, float(table.min())), None)))
        figures.append(Figure("-history", "Weights of the layers below", maps))
    if others:
        tables["-others"] = results.of_records(others)
    header = ("model", "stack", "stream, least", "stream, most", "branch, least", "branch, most", "dead gates")
    rows: list[Sequence[Any]] = []
    notes = []
    for label, measured in by_label.items():
        dead = [sub.name for sub, s in zip(every[label][3], measured, strict=True) if s.branch_size < DEAD]
        for stack in dict.fromkeys(scale.stack for scale in measured):
            own = [scale for scale in measured if scale.stack == stack]
            branches = [scale.branch for scale in own]
            least, most = min(scale.stream_least for scale in own), max(scale.stream_most for scale in own)
            gates = sum(name.startswith(stack) for name in dead)
            rows.append((label, stack, least, most, min(branches), max(branches), gates))
        notes += dead_gates(label, dead, len(measured))
    return AnalysisResult(tables, figures, header, rows, notes)


ANALYSIS = Analysis(
    "scales", "omega, alpha, gates and history weights of each layer; dead gates", "ReZero Fig. 6, DLCL", run_scales
)
