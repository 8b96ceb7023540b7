"""Weights of branches and streams: omega (Liu et al., EMNLP 2020, figure 8), alpha (Bachlechner et al., UAI 2021,
figure 6), and the weights of a history (Wang et al., ACL 2019).

No weight is read by name. A residual is linear in branch, stream and layer input, so its weights are its outputs for a
one in one input and zeros in the others; the same holds for a history without its LayerNorms.
"""  # noqa: D205

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from fairseq_plugins.core.history import mixing_weights
from fairseq_plugins.core.norm import NormPlace
from fairseq_plugins.core.sub_layers import sub_layers
from fairseq_plugins.observe.diagnostics.models import Subject
from fairseq_plugins.observe.diagnostics.results import (
    BY_SUB_LAYER,
    STACKS,
    Analysis,
    Result,
    Settings,
    cells,
    each,
    of_records,
)
from fairseq_plugins.plots import Figure, HeatMap, Line, Lines, Panel

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

    Layers count from 0.
    """

    stack: str
    layer: int
    site: str
    branch: float
    stream: float
    stream_least: float
    stream_most: float
    layer_input: float

    @property
    def dead(self) -> bool:
        """Whether the branch is practically switched off."""
        return abs(self.branch) < DEAD

    @property
    def name(self) -> str:
        """Name of its sub-layer in the state dict."""
        return f"{self.stack}.layers.{self.layer}.{self.site}"


class Mixture(NamedTuple):
    """Weight of state ``of`` (0: the embedding, k: the output of layer k - 1) in the input of ``layer``.

    Layers count from 0; one more is the output of the stack.
    """

    stack: str
    layer: int
    of: int
    weight: float


@torch.no_grad()
def scales(model: Any) -> list[Scale]:
    """Return the scales of every residual connection, the encoder's first."""
    measured = []
    for sub in sub_layers(model):
        width = sub.layer.embed_dim
        ones = torch.eye(3).view(3, 3, 1, 1, 1).expand(3, 3, 1, 1, width)
        branch, stream, layer_input = (sub.residual(*inputs).flatten() for inputs in ones)
        if NormPlace.AFTER in sub.norms:
            # A connection after the norm, the only one there.
            zeros = torch.zeros(1, 1, width)
            layer_input = layer_input + sub.residual.after_norm(zeros, zeros + 1).flatten()
        values = (branch.mean(), stream.mean(), stream.min(), stream.max(), layer_input.mean())
        measured.append(Scale(sub.stack, sub.number, sub.site.value, *map(float, values)))
    return measured


def mixtures(model: Any) -> list[Mixture]:
    """Return the weights of the history of every stack whose layers read more than the one below."""
    weights = []
    for name, stack in model.stacks():
        table = mixing_weights(stack)
        # A plain stack reads only the layer below, with weight one.
        if not torch.equal(table, torch.eye(len(table))):
            for layer, row in enumerate(table.tolist()):
                weights += [Mixture(name, layer, of, weight) for of, weight in enumerate(row[: layer + 1])]
    return weights


def run_scales(subjects: Sequence[Subject], settings: Settings) -> Result:
    """Show the weights of branches and streams, and of histories if there are any."""
    both = each(subjects, settings, lambda model, batch: (scales(model), mixtures(model)))
    by_label: dict[str, list[Scale]] = {label: pair[0] for label, pair in both.items()}
    mixed_by_label: dict[str, list[Mixture]] = {label: pair[1] for label, pair in both.items() if pair[1]}
    panels: list[Panel] = []
    for column, stack in itertools.product(("stream", "branch"), STACKS):
        lines = []
        for label, measured in by_label.items():
            weights = [getattr(scale, column) for scale in measured if scale.stack == stack]
            lines.append(Line(label, list(enumerate(weights, start=1))))
        panels.append(Lines(f"{stack}: weight of the {column}", BY_SUB_LAYER, "mean over the width", lines))
    tables = [of_records("scales", by_label)]
    figures = [Figure("scales", "Weights at the residual connections", panels)]
    if mixed_by_label:
        tables.append(of_records("scales-history", mixed_by_label))
        figures.append(Figure("scales-history", "Weights of the layers below", _history_maps(mixed_by_label)))
    header = ("model", "stack", "stream, least", "stream, most", "branch, least", "branch, most", "dead gates")
    rows: list[Sequence[Any]] = []
    notes = []
    for label, measured in by_label.items():
        for stack in dict.fromkeys(scale.stack for scale in measured):
            own = [scale for scale in measured if scale.stack == stack]
            branches = [scale.branch for scale in own]
            least, most = min(scale.stream_least for scale in own), max(scale.stream_most for scale in own)
            rows.append((label, stack, least, most, min(branches), max(branches), sum(scale.dead for scale in own)))
        notes += dead_gates(label, [scale.name for scale in measured if scale.dead], len(measured))
    return Result(tables, figures, cells(header, rows), notes)


def _history_maps(by_label: Mapping[str, Sequence[Mixture]]) -> list[Panel]:
    panels: list[Panel] = []
    for label, measured in by_label.items():
        for stack in dict.fromkeys(mixture.stack for mixture in measured):
            own = {(mixture.layer, mixture.of): mixture.weight for mixture in measured if mixture.stack == stack}
            size = 1 + max(layer for layer, _ in own)
            values = [[own.get((layer, of)) for of in range(size)] for layer in range(size)]
            limits = (min(0.0, *own.values()), None)
            x_label, y_label = "output of layer (0: the embedding)", "input of layer"
            panels.append(HeatMap(f"{label}, {stack}", x_label, y_label, "weight", values, 0, limits))
    return panels


ANALYSIS = Analysis(
    "scales",
    "omega, alpha, gates and history weights of each layer; dead gates",
    "Admin Fig. 8, ReZero Fig. 6, DLCL",
    run_scales,
)
