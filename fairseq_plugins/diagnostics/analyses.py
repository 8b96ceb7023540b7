"""The registry of analyses: for each its name, its paper and what it makes of some models, namely tables and figures.

The numbers come from the modules named after the analyses; here they are only put side by side.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.diagnostics import (
    blocks,
    dependency,
    gradients,
    jacobian,
    output_change,
    scales,
    similarity,
    timeline,
    updates,
)
from fairseq_plugins.diagnostics.batches import Batch
from fairseq_plugins.diagnostics.models import Subject
from fairseq_plugins.diagnostics.plots import Bars, Figure, HeatMap, Line, Lines, Panel, Ranges
from fairseq_plugins.diagnostics.results import Analysis, Result, Settings
from fairseq_plugins.diagnostics.tables import Table, cells, of_matrices, of_records
from fairseq_plugins.errors import UserError, unknown_name

STACKS = ("encoder", "decoder")
UPWARDS = "sub-layer, from the bottom"
LAYER = "layer, from the bottom"


def each(subjects: Sequence[Subject], settings: Settings, measure: Callable[[Any, Batch], Any]) -> dict[str, Any]:
    """``measure`` of every model with its batch, by label; dropout draws the same numbers for each."""
    found = {}
    for number, subject in enumerate(subjects, start=1):
        settings.progress(f"{subject.label} ({number} of {len(subjects)})")
        batch = settings.batch(subject)
        model = subject.ready(batch, settings.seed)
        torch.manual_seed(settings.seed)
        found[subject.label] = measure(model, batch)
        del model  # before the next one is built
    return found


# Gradient norms.


def run_gradient_norm(subjects: Sequence[Subject], settings: Settings) -> Result:
    """Points of each model; norms by the largest of its sub-layers and by that of its top decoder layer."""
    found: dict[str, list[gradients.Point]] = each(subjects, settings, gradients.gradient_norms)
    rows = [(label, *point, *_relative(points, point)) for label, points in found.items() for point in points]
    columns = ("model", *gradients.Point._fields, "relative_to_largest", "relative_to_top")
    table = Table("gradient-norm", columns, tuple(rows))
    panels: list[Panel] = []
    for stack in STACKS:
        panels.append(_gradient_panel(found, stack, "sub-layer outputs", UPWARDS, _sub_layer_curve, "largest"))
    for stack in STACKS:
        panels.append(_gradient_panel(found, stack, "layer outputs", LAYER, _layer_curve, "top decoder layer's"))
    for stack in STACKS:
        panels.append(_gradient_panel(found, stack, "parameters of a layer", LAYER, _parameter_curve, "largest"))
    figures = [
        Figure("gradient-norm", "Gradient norms", panels, share_y="row"),
        Figure("gradient-norm-points", "Gradient norms inside a decoder layer", _point_panels(found), 3, 4.0, "row"),
    ]
    return Result([table], figures, _shown_gradients(found))


def largest_of(points: Sequence[gradients.Point]) -> float:
    """Largest norm at a sub-layer's output."""
    return max(p.norm for p in points if p.site != "layer" and p.point == "output")


def top_of(points: Sequence[gradients.Point]) -> float:
    """Norm at the output of the top layer of the last stack."""
    return [p.norm for p in points if p.site == "layer" and p.point == "output"][-1]


def _relative(points: Sequence[gradients.Point], point: gradients.Point) -> tuple[float | None, float | None]:
    if point.point == "parameters":
        largest = max(p.norm for p in points if p.point == "parameters")
        return _by(point.norm, largest), None
    return _by(point.norm, largest_of(points)), _by(point.norm, top_of(points))


def _by(value: float, of: float) -> float | None:
    return value / of if of else None


def _sub_layer_curve(points: Sequence[gradients.Point], stack: str) -> list[float]:
    norms = [p.norm for p in points if p.stack == stack and p.site != "layer" and p.point == "output"]
    return [norm / (largest_of(points) or 1) for norm in norms]


def _layer_curve(points: Sequence[gradients.Point], stack: str) -> list[float]:
    return [norm / (top_of(points) or 1) for norm in gradients.layer_outputs(list(points), stack)]


def _parameter_curve(points: Sequence[gradients.Point], stack: str) -> list[float]:
    largest = max(p.norm for p in points if p.point == "parameters") or 1
    return [p.norm / largest for p in points if p.stack == stack and p.point == "parameters"]


def _gradient_panel(
    found: Mapping[str, Sequence[gradients.Point]],
    stack: str,
    what: str,
    x_label: str,
    curve: Callable[[Sequence[gradients.Point], str], list[float]],
    by: str,
) -> Lines:
    lines = [Line(label, list(enumerate(curve(points, stack), start=1))) for label, points in found.items()]
    return Lines(f"{stack}: {what}", x_label, f"gradient norm / {by}", lines, log_y=True)


def _point_panels(found: Mapping[str, Sequence[gradients.Point]]) -> list[Panel]:
    """The bottom, the middle and the top layer of the decoder; models may differ in depth."""
    panels: list[Panel] = []
    for name, part in (("bottom", 0.0), ("middle", 0.5), ("top", 1.0)):
        paths = {label: _path(points, part) for label, points in found.items()}
        ticks = max(([tick for tick, _ in path] for path in paths.values()), key=len)
        places = {tick: place for place, tick in enumerate(ticks, start=1)}
        lines = [
            Line(label, [(places[tick], norm) for tick, norm in path if tick in places])
            for label, path in paths.items()
        ]
        panels.append(
            Lines(
                f"decoder, {name} layer",
                "point, from the bottom",
                "gradient norm / top decoder layer's",
                lines,
                log_y=True,
                x_ticks=ticks,
            )
        )
    return panels


def _path(points: Sequence[gradients.Point], part: float) -> list[tuple[str, float]]:
    """Along the stream of one decoder layer: its input, then each sum and what stands behind it.

    Args:
        points: of one model.
        part: which layer, from 0 for the bottom to 1 for the top.
    """
    top_layer = max(p.layer for p in points if p.stack == "decoder")
    inside = [
        p for p in points if (p.stack, p.layer) == ("decoder", int(part * top_layer)) and p.site != gradients.LAYER
    ]
    top = top_of(points) or 1
    names = {"total": "sum", "output": "output"}
    path = [("layer input", next(p.norm / top for p in inside if p.point == "stream"))]
    return path + [(f"{p.site} {names[p.point]}", p.norm / top) for p in inside if p.point in names]


def _shown_gradients(found: Mapping[str, Sequence[gradients.Point]]) -> list[list[str]]:
    header = ("model", "encoder bottom", "encoder top", "decoder bottom", "decoder top", "bottom / top")
    rows: list[Sequence[Any]] = []
    for label, points in found.items():
        encoder, decoder = (_layer_curve(points, stack) for stack in STACKS)
        rows.append((label, encoder[0], encoder[-1], decoder[0], decoder[-1], _by(decoder[0], decoder[-1])))
    return cells(header, rows)


# Gradient ratios of residual blocks.


def run_gradient_ratios(subjects: Sequence[Subject], settings: Settings) -> Result:
    """Every block, and the means of Table 1."""
    found = each(subjects, settings, blocks.blocks)
    means: dict[str, list[blocks.Kind]] = {label: blocks.kinds(some) for label, some in found.items()}
    names = list(dict.fromkeys(f"{kind.stack} {kind.site}" for some in means.values() for kind in some))
    titles = {
        "beta_ln": ("LayerNorm", "|dr| / |do|", 1.0),
        "beta_rc": ("residual connection", "|dz| / |dr|", 1.0),
        "beta": ("block", "|dz| / |do|", 1.0),
        "variance": ("sum", "Var(r)", 0.0),
    }
    panels: list[Panel] = []
    for column, (title, y_label, base) in titles.items():
        series = [(label, [_cell(some, name, column) for name in names]) for label, some in means.items()]
        if any(value is not None for _, values in series for value in values):
            panels.append(Bars(title, y_label, names, series, base))
    tables = [of_records("gradient-ratios", means), of_records("gradient-ratios-layers", found)]
    header = ("model", "sub-layer", "beta_LN", "beta_RC", "beta", "Var(r)")
    rows = [(label, f"{k.stack} {k.site}", *k[2:]) for label, some in means.items() for k in some]
    figure = Figure("gradient-ratios", "Gradient ratios of residual blocks", panels)
    return Result(tables, [figure], cells(header, rows))


def _cell(some: Sequence[blocks.Kind], name: str, column: str) -> float | None:
    return next((getattr(kind, column) for kind in some if f"{kind.stack} {kind.site}" == name), None)


# Residual dependency.


def run_dependency(subjects: Sequence[Subject], settings: Settings) -> Result:
    """beta_ij as heat maps, and the newest branch's share by the number of its sub-layer."""
    found: dict[str, dict[str, Tensor]] = each(subjects, settings, dependency.dependency)
    maps: list[Panel] = [
        HeatMap(
            f"{label}, {stack}",
            "branch j (0: the embedding)",
            "sub-layer i",
            "beta_ij",
            upper_empty(beta),
            0,
            (0.0, 1.0),
        )
        for label, stacks in found.items()
        for stack, beta in stacks.items()
    ]
    curves: list[Panel] = [_newest_panel(found, stack) for stack in STACKS]
    table = of_matrices("dependency", ("sub_layer", "branch", "beta"), found, first=(1, 0))
    header = ("model", "stack", "beta_11^2", "beta_ii^2 middle", "beta_ii^2 top", "growth of 1 / beta_ii^2")
    rows: list[Sequence[Any]] = []
    for label, stacks in found.items():
        for stack, beta in stacks.items():
            share = dependency.newest(beta)
            rows.append((label, stack, share[0], share[len(share) // 2], share[-1], growth(share)))
    figures = [
        Figure("dependency", "Residual dependency", maps),
        Figure("dependency-newest", "Share of the newest branch", curves),
    ]
    return Result([table], figures, cells(header, rows))


def upper_empty(beta: Tensor) -> list[list[float | None]]:
    """Rows of beta; a branch that is not there yet has no value."""
    return [[value if j <= i + 1 else None for j, value in enumerate(row)] for i, row in enumerate(beta.tolist())]


def growth(share: Sequence[float]) -> float | None:
    """Growth of 1 / beta_ii^2 from one sub-layer to the next, by least squares: 0 for a constant share, 1 for 1 / i.

    Branches of one variance v over an embedding of variance w have the share v / (w + i v), so it is 1 from the start.
    """
    points = [(float(i), 1 / value) for i, value in enumerate(share, start=1) if value > 0]
    if len(points) < 2:
        return None
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def _newest_panel(found: Mapping[str, Mapping[str, Tensor]], stack: str) -> Lines:
    lines = [
        Line(label, list(enumerate(dependency.newest(stacks[stack]), start=1)))
        for label, stacks in found.items()
        if stack in stacks
    ]
    longest = max((len(line.points) for line in lines), default=1)
    guide = Line("1 / i", [(i, 1 / i) for i in range(2, longest + 1)], guide=True)
    return Lines(stack, "sub-layer i, from the bottom", "beta_ii squared", [*lines, guide], log_x=True, log_y=True)


# Output change.


def run_output_change(subjects: Sequence[Subject], settings: Settings) -> Result:
    """The curve of each model and the two laws."""
    if settings.step not in output_change.STEPS:
        raise UserError(unknown_name("step", settings.step, output_change.STEPS))
    found: dict[str, list[output_change.Change]] = {}
    for number, subject in enumerate(subjects, start=1):
        settings.progress(f"{subject.label} ({number} of {len(subjects)})")
        batch = settings.batch(subject)
        found[subject.label] = output_change.curve(subject, batch, settings.step, settings.deepest, settings.models)
    name = f"output-change-{settings.step}"
    lines = [Line(label, [(c.depth, c.mean) for c in curve]) for label, curve in found.items()]
    y_label = "squared change of the output"
    panels: list[Panel] = [
        Lines("a line here: O(N)", "encoder layers N", y_label, lines),
        Lines("a line here: O(log N)", "encoder layers N", y_label, lines, log_x=True),
        Lines("both axes logarithmic", "encoder layers N", y_label, lines, log_x=True, log_y=True),
    ]
    title = f"Output change, {settings.step} step, mean of {settings.models} model{'s' * (settings.models > 1)}"
    header = ("model", "N = 1", "N = 10", "deepest", "there", "R^2 with N", "R^2 with log N")
    rows = []
    for label, curve in found.items():
        by_depth = {c.depth: c.mean for c in curve}
        top = curve[-1]
        law = output_change.law(curve)
        rows.append((label, curve[0].mean, by_depth.get(10), f"N = {top.depth}", top.mean, *law))
    return Result([of_records(name, found)], [Figure(name, title, panels, columns=3, width=4.0)], cells(header, rows))


# Jacobian.


def run_jacobian(subjects: Sequence[Subject], settings: Settings) -> Result:
    """Histograms of log10 of the singular values."""
    for subject in subjects:
        words = int(settings.batch(subject).lengths[0])
        jacobian.require_size(words, subject.options.encoder_embed_dim)
    found = each(subjects, settings, lambda model, batch: jacobian.singular_values(jacobian.jacobian(model, batch)))
    rows = tuple((label, i, v) for label, values in found.items() for i, v in enumerate(values.tolist(), start=1))
    table = Table("jacobian", ("model", "number", "singular_value"), rows)
    limits = common_limits(list(found.values()))
    panels: list[Panel] = [
        Lines(label, "log10 of a singular value", "share of the values", [Line("", histogram(values, limits))])
        for label, values in found.items()
    ]
    header = ("model", "largest", "median", "smallest", "root mean square", "share in 0.5 to 2")
    shown: list[Sequence[Any]] = []
    for label, v in found.items():
        near = float(((v >= 0.5) & (v <= 2)).double().mean())
        shown.append((label, float(v[0]), float(v.median()), float(v[-1]), float(v.square().mean().sqrt()), near))
    figure = Figure("jacobian", "Input-output Jacobian of the encoder", panels, columns=3, width=3.4, share_y="all")
    return Result([table], [figure], cells(header, shown))


LEAST_SINGULAR, BINS = 1e-6, 60


def common_limits(found: Sequence[Tensor]) -> tuple[float, float]:
    """Range of log10 of all values, with a little room."""
    logs = [values.double().clamp(min=LEAST_SINGULAR).log10() for values in found]
    return min(float(one.min()) for one in logs) - 0.1, max(float(one.max()) for one in logs) + 0.1


def histogram(values: Tensor, limits: tuple[float, float]) -> list[tuple[float, float]]:
    """Middle of a bin of log10 and the share of the values in it; what is smaller than the least counts as that."""
    low, high = limits
    counts = torch.histc(values.double().clamp(min=LEAST_SINGULAR).log10(), bins=BINS, min=low, max=high)
    width = (high - low) / BINS
    return [(low + (i + 0.5) * width, float(c) / len(values)) for i, c in enumerate(counts.tolist())]


# Similarity.


def run_similarity(subjects: Sequence[Subject], settings: Settings) -> Result:
    """Heat maps of cosines."""
    found: dict[str, dict[str, Tensor]] = each(subjects, settings, similarity.similarity)
    least = min(float(matrix.min()) for stacks in found.values() for matrix in stacks.values())
    panels: list[Panel] = [
        HeatMap(f"{label}, {stack}", LAYER, LAYER, "cosine similarity", matrix.tolist(), 1, (least, 1.0))
        for label, stacks in found.items()
        for stack, matrix in stacks.items()
    ]
    table = of_matrices("similarity", ("layer", "other", "cosine"), found, first=(0, 0))
    header = ("model", "stack", "neighbours, mean", "bottom and top")
    rows = []
    for label, stacks in found.items():
        for stack, matrix in stacks.items():
            neighbours = matrix.diagonal(1)
            rows.append((label, stack, float(neighbours.mean()) if len(neighbours) else None, float(matrix[0, -1])))
    return Result([table], [Figure("similarity", "Similarity of layer outputs", panels)], cells(header, rows))


# Scales.


def run_scales(subjects: Sequence[Subject], settings: Settings) -> Result:
    """Weights of branches and streams, and of histories where there are any."""
    both = each(subjects, settings, lambda model, batch: (scales.scales(model), scales.mixtures(model)))
    found: dict[str, list[scales.Scale]] = {label: pair[0] for label, pair in both.items()}
    mixed: dict[str, list[scales.Mixture]] = {label: pair[1] for label, pair in both.items() if pair[1]}
    panels: list[Panel] = [
        _scale_panel(found, stack, column, title)
        for column, title in (("stream", "weight of the stream"), ("branch", "weight of the branch"))
        for stack in STACKS
    ]
    tables = [of_records("scales", found)]
    figures = [Figure("scales", "Weights at the junctions", panels)]
    if mixed:
        tables.append(of_records("scales-history", mixed))
        figures.append(Figure("scales-history", "Weights of the layers below", _history_maps(mixed)))
    header = ("model", "stack", "stream, least", "stream, most", "branch, least", "branch, most", "dead gates")
    rows: list[Sequence[Any]] = []
    notes = []
    for label, some in found.items():
        for stack in dict.fromkeys(one.stack for one in some):
            own = [one for one in some if one.stack == stack]
            branches = [one.branch for one in own]
            least, most = min(one.stream_least for one in own), max(one.stream_most for one in own)
            rows.append((label, stack, least, most, min(branches), max(branches), sum(one.dead for one in own)))
        notes += scales.dead_gates(label, [one.name for one in some if one.dead], len(some))
    return Result(tables, figures, cells(header, rows), notes)


def _scale_panel(found: Mapping[str, Sequence[scales.Scale]], stack: str, column: str, title: str) -> Lines:
    lines = [
        Line(label, [(i, getattr(one, column)) for i, one in enumerate((s for s in some if s.stack == stack), start=1)])
        for label, some in found.items()
    ]
    return Lines(f"{stack}: {title}", UPWARDS, "mean over the width", lines)


def _history_maps(mixed: Mapping[str, Sequence[scales.Mixture]]) -> list[Panel]:
    panels: list[Panel] = []
    for label, some in mixed.items():
        for stack in dict.fromkeys(one.stack for one in some):
            own = {(one.layer, one.of): one.weight for one in some if one.stack == stack}
            size = 1 + max(layer for layer, _ in own)
            values = [[own.get((layer, of)) for of in range(size)] for layer in range(size)]
            title = f"{label}, {stack}"
            least = min(0.0, *own.values())
            panels.append(
                HeatMap(
                    title, "output of layer (0: the embedding)", "input of layer", "weight", values, 0, (least, None)
                )
            )
    return panels


# Updates.


def run_updates(subjects: Sequence[Subject], settings: Settings) -> Result:
    """Matrices of each checkpoint on its way to the next."""
    found: dict[str, list[updates.Matrix]] = {}
    for subject, later in updates.pairs(list(subjects)):
        settings.progress(subject.label if later is None else f"{subject.label} to {later.label}")
        batch = settings.batch(subject)
        label = subject.label if later is None else f"{subject.label} to {later.label}"
        other = None if later is None else later.build()
        found[label] = updates.updates(subject.ready(batch, settings.seed), batch, other)
    names = list(dict.fromkeys(f"{m.stack} {m.kind}" for some in found.values() for m in some))
    panels: list[Panel] = []
    for column, title in (("relative_gradient", "gradient"), ("relative_update", "update")):
        series = [(label, [_range(some, name, column) for name in names]) for label, some in found.items()]
        if any(value is not None for _, values in series for value in values):
            panels.append(Ranges(title, "norm / the model's largest", names, series))
    header = ("model", "matrix", "gradient", "update", "update / weight")
    columns = ("relative_gradient", "relative_update", "update_to_weight")
    rows: list[Sequence[Any]] = []
    for label, some in found.items():
        for name in names:
            middles = [_range(some, name, column) for column in columns]
            if middles[0] is not None:
                rows.append((label, name, *(None if one is None else one[1] for one in middles)))
    title = "Gradient and update of each kind of matrix: least, median, largest"
    figure = Figure("updates", title, panels, columns=1, width=8.0)
    notes = [] if any(s.weights is not None for s in subjects) else [NO_UPDATES]
    return Result([of_records("updates", found)], [figure], cells(header, rows), notes)


NO_UPDATES = "no updates: they are what lies between two checkpoints of a training (--checkpoint EARLIER LATER)"


def _range(some: Sequence[updates.Matrix], name: str, column: str) -> tuple[float, float, float] | None:
    own = [getattr(m, column) for m in some if f"{m.stack} {m.kind}" == name]
    values = [value for value in own if value is not None]
    return (min(values), statistics.median(values), max(values)) if values else None


REGISTRY: tuple[Analysis, ...] = (
    Analysis(
        "gradient-norm",
        "gradient norms of layers, sub-layers, points around each norm, parameters",
        "Admin Fig. 3, B2T Fig. 3, 4, 7, DS-Init Fig. 1",
        run_gradient_norm,
    ),
    Analysis(
        "gradient-ratios",
        "what LayerNorm and residual connection do to the gradient; variance of the sum",
        "DS-Init Table 1",
        run_gradient_ratios,
    ),
    Analysis(
        "dependency",
        "share of each branch below in each sub-layer's output",
        "Admin Fig. 7, 8",
        run_dependency,
        sentences=2,
    ),
    Analysis(
        "output-change",
        "how much the output moves when the weights do, by depth",
        "Admin Fig. 4",
        run_output_change,
        sentences=4,
        length=12,
    ),
    Analysis(
        "jacobian",
        "singular values of the encoder's input-output Jacobian",
        "ReZero Fig. 5",
        run_jacobian,
        sentences=1,
        length=8,
    ),
    Analysis("similarity", "cosine similarity between layer outputs", "B2T Fig. 5", run_similarity),
    Analysis(
        "scales",
        "omega, alpha, gates and history weights of each layer; dead gates",
        "Admin Fig. 8, ReZero Fig. 6, DLCL",
        run_scales,
    ),
    Analysis(
        "updates",
        "relative gradient and update of each kind of matrix, from two checkpoints",
        "Admin Fig. 5, 11",
        run_updates,
    ),
    Analysis(
        "timeline",
        "gradients, activations, alpha, omega and history weights over a training",
        "ReZero Fig. 6, Admin Fig. 8, DLCL",
        timeline.run_timeline,
        of="trainings",
    ),
)
OF_MODELS = tuple(one for one in REGISTRY if one.of == "models")
BY_NAME: Mapping[str, Analysis] = {analysis.name: analysis for analysis in REGISTRY}


def find(name: str) -> Analysis:
    """The analysis called ``name``.

    Raises:
        UserError: there is none; with the nearest one.
    """
    if name not in BY_NAME:
        raise UserError(unknown_name("analysis", name, [*BY_NAME, "all"]))
    return BY_NAME[name]
