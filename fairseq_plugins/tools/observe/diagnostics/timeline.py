"""Changes over a training: norms and sizes at every sub-layer, and the weights that a method trains.

Heat maps of sub-layer by update, as in Bachlechner et al., UAI 2021, figure 6 (alpha); lines of the weights at
residuals (omega of Liu et al., EMNLP 2020) and in histories (Wang et al., ACL 2019). Names are those of the recorder
(docs/divergence.md): places are those of the state dict, whose layers count from 0.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.core.sub_layers import forward_order, place_of
from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.observe.diagnostics.results import Analysis, AnalysisResult, AnalysisSettings, Table
from fairseq_plugins.tools.observe.diagnostics.scales import DEAD, dead_gates
from fairseq_plugins.tools.observe.recorder.entries import NAME, Entry, read
from fairseq_plugins.tools.pipeline.results import CHECKPOINTS
from fairseq_plugins.tools.plots import Figure, HeatMap, Line, Lines, Panel

UPDATES = "updates"
PLACES = {
    "gradient_norm": ("Gradient norm of the parameters of each sub-layer", "L2 norm before clipping"),
    "branch_gradient_norm": ("Gradient norm of each branch", "L2 norm over all positions"),
    "norm_output_rms": ("Output of each LayerNorm", "root mean square"),
    "branch_scale": ("Weight of the branch at each residual connection", "weight of the branch"),
    "stream_scale": ("Weight of the stream at each residual connection", "weight of the stream"),
}
"""Numbers of every place: the title of their figure, and their meaning."""
WEIGHTS = ("branch_scale", "stream_scale")
HISTORY = re.compile(r"(?P<stack>.+)\.history\.(?P<layer>\d+)\.(?P<of>\d+)/history_weight")
LIGHTEST = 0.02
"""Share of the positive values below the lower end of a logarithmic scale. ReZero's gradients begin at zero, and a
scale that reaches down to its second update would hide all others."""

Course = Sequence[Entry]
Courses = Mapping[str, Course]
"""Values, keyed by the label of the training."""


def read_trainings(paths: Sequence[Path]) -> dict[str, list[Entry]]:
    """Return the entries of every training in ``paths``, by the directory of its run or the recorder's own file name.

    Args:
        paths: files of a recorder, or directories with some in them or below them.

    Raises:
        UserError: a path has none, a run has two, or a file has no entry.
    """
    files: list[Path] = []
    for path in paths:
        files += below if (below := sorted(path.rglob(NAME))) else [path]
        if path.is_dir() and not below:
            raise UserError(f"{path}: no {NAME} in it or below it")
    if not files:
        raise UserError(f"no training given: name a {NAME}, or a directory with one")
    places = {}
    for file in dict.fromkeys(file.absolute() for file in files):
        directory = file.parent.parent if file.parent.name == CHECKPOINTS else file.parent
        places[file] = directory if file.name == NAME else file
    above = os.path.commonpath([place.parent for place in places.values()])
    trainings: dict[str, list[Entry]] = {}
    for file, place in places.items():
        label = os.path.relpath(place, above)
        if label in trainings:
            raise UserError(f"{file}: a second {NAME} of {place}; name the one to show")
        entries = trainings[label] = read(file)
        if not entries:
            raise UserError(f"{file}: contains no whole entry of a recorder")
    return trainings


def run_timeline(courses: Courses, settings: AnalysisSettings) -> AnalysisResult:
    """Return a table of everything, and figures of the recorded numbers."""
    rows: Table = [("run", "update", "applied", "place", "kind", "value")]
    shown: list[Sequence[Any]] = []
    notes: list[str] = []
    for label, course in courses.items():
        for entry in course:
            names = sorted(entry.values, key=lambda name: ("/" in name, forward_order(name.rpartition("/")[0])))
            row = (label, entry.update, "yes" if entry.applied else "no")
            rows += [(*row, *name.rpartition("/")[::2], entry.values[name]) for name in names]
        norms = _last_values(course, "gradient_norm")
        # A norm that is not a number is larger than any other.
        place = max(norms, key=lambda name: (math.isnan(norms[name]), norms[name]), default=None)
        ends = [entry.values.get("gradient_norm") for entry in (course[0], course[-1])]
        dropped = sum(not entry.applied for entry in course)
        largest = None if place is None else norms[place]
        shown.append((label, len(course), f"{course[0].update} to {course[-1].update}", dropped, *ends, largest, place))
        gates = _last_values(course, "branch_scale")
        sizes = gates | _last_values(course, "branch_size")  # weights of both signs have no mean
        dead = [place for place, weight in sizes.items() if abs(weight) < DEAD]
        notes += dead_gates(label, dead, len(gates), f" at update {course[-1].update}")
    header = ("run", "entries", "updates", "not applied", "gradient norm, first", "last", "largest part", "of")
    # An update that was dropped has given its number to the next.
    last = {label: list({entry.update: entry for entry in course}.values()) for label, course in courses.items()}
    figures = [*(_place_figure(last, kind) for kind in PLACES), _history_figure(last)]
    return AnalysisResult({"": rows}, figures, header, shown, notes)


def _last_values(course: Course, kind: str) -> dict[str, float]:
    """Return the values of ``kind`` in the last entry, by place in the layers."""
    split = ((*name.rpartition("/")[::2], value) for name, value in course[-1].values.items())
    return {place: value for place, name, value in split if name == kind and place_of(place)}


def _points(course: Course, name: str) -> list[tuple[float, float]]:
    values = ((entry.update, entry.values.get(name, math.nan)) for entry in course)
    return [(update, value) for update, value in values if math.isfinite(value)]


def _stacks(course: Course, kind: str) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Return the points of ``kind`` by stack and place in its layers, from the bottom."""
    names = {name.rpartition("/")[0] for entry in course for name in entry.values if name.endswith(f"/{kind}")}
    stacks: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name in sorted(names, key=forward_order):
        if place := place_of(name):
            stacks.setdefault(place.stack, {})[name] = _points(course, f"{name}/{kind}")
    return stacks


def _place_figure(courses: Courses, kind: str) -> Figure:
    """Return a heat map for every training and stack, all with one scale: logarithmic for measured numbers.

    A weight also has lines of the bottom, middle and top layer; a weight that is always one is not shown. Values
    below the scale are clipped to it, and those that are not finite are not drawn.
    """
    title, unit = PLACES[kind]
    of_weight = kind in WEIGHTS
    trainings, sizes = {}, []
    for label, course in courses.items():
        stacks = _stacks(course, kind)
        own = [abs(value) for places in stacks.values() for points in places.values() for _, value in points]
        if not of_weight or set(own) - {1.0}:
            trainings[label] = stacks
            sizes += own
    largest = max(sizes, default=1.0) or 1.0
    positive = sorted(size for size in sizes if size > 0) or [largest]
    low = 0.0 if of_weight else min(positive[int(LIGHTEST * len(positive))], largest / 1.1)  # a scale needs a width
    log = not of_weight and largest >= 10 * low
    panels: list[Panel] = []
    for label, stack, places in ((label, *item) for label, stacks in trainings.items() for item in stacks.items()):
        updates = [entry.update for entry in courses[label]]
        bounded = [{update: max(abs(value), low) for update, value in points} for points in places.values()]
        rows = [[values.get(update) for update in updates] for values in bounded]
        names = [place.removeprefix(f"{stack}.") for place in places]
        axes = (UPDATES, "sub-layer (layers count from 0)", f"|{unit}|" if of_weight else unit)
        limits = (low, largest)
        panels.append(
            HeatMap(f"{label}, {stack}", *axes, rows, limits=limits, columns=updates, row_names=names, log=log)
        )
        if of_weight:
            layers = list(dict.fromkeys(place.rpartition(".")[0] for place in places))
            chosen = [layers[number] for number in _bottom_middle_top(len(layers))]
            lines: dict[tuple[Any, ...], Line] = {}  # the points are the keys: sub-layers may share a weight
            for (place, points), name in zip(places.items(), names, strict=True):
                if place.rpartition(".")[0] in chosen:
                    lines.setdefault(tuple(points), Line(name, points))
            panels.append(Lines(f"{label}, {stack}", UPDATES, unit, list(lines.values())))
    return Figure(f"-{kind.replace('_', '-')}", title, panels)


def _bottom_middle_top(count: int) -> list[int]:
    return sorted({0, (count - 1) // 2, count - 1})


def _history_figure(courses: Courses) -> Figure:
    """Show the weights of all states in the output of each stack, the last mixture."""
    panels: list[Panel] = []
    unit = "weight in the mixture"
    for label, course in courses.items():
        matches = [match for name in course[-1].values if (match := HISTORY.fullmatch(name))]
        for stack in dict.fromkeys(match["stack"] for match in matches):
            top = max(int(match["layer"]) for match in matches if match["stack"] == stack)
            weights = [_points(course, f"{stack}.history.{top}.{of}/history_weight") for of in range(top + 1)]
            rows = [[dict(points).get(entry.update) for entry in course] for points in weights]
            values = [value for points in weights for _, value in points]
            names = ["embedding", *(f"layers.{layer}" for layer in range(top))]
            title, limits = f"{label}, {stack}: its output", (min([0.0, *values]), max([0.0, *values]))
            updates = [entry.update for entry in course]
            panels.append(HeatMap(title, UPDATES, "state", unit, rows, limits=limits, columns=updates, row_names=names))
            lines = [Line(names[of], weights[of]) for of in _bottom_middle_top(top + 1)]
            panels.append(Lines(title, UPDATES, unit, lines))
    return Figure("-history", "Weights of the layers below in the output of a stack", panels)


ANALYSIS = Analysis(
    "timeline",
    "gradients, activations, alpha, omega and history weights over a training",
    "ReZero Fig. 6, DLCL",
    run_timeline,
)
