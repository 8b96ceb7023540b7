"""Changes over a training: norms and sizes at every sub-layer, and the weights that a method trains.

Heat maps of sub-layer by update, as in Bachlechner et al., UAI 2021, figure 6 (alpha); lines of the weights at
residuals (omega of Liu et al., EMNLP 2020) and in histories (Wang et al., ACL 2019). Names are those of the recorder
(docs/recorder.md): places are those of the state dict, whose layers count from 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fairseq_plugins.core.sub_layers import forward_order, place_of
from fairseq_plugins.observe.diagnostics.results import Analysis, Result, Settings, Table, cells
from fairseq_plugins.observe.diagnostics.scales import DEAD, dead_gates
from fairseq_plugins.observe.diagnostics.trainings import CHECKPOINTS, Training
from fairseq_plugins.observe.recorder.entries import Entry
from fairseq_plugins.plots import Figure, HeatMap, Line, Lines, Panel

UPDATES = "updates"
SHARE = "branch_by_stream"
"""Root mean square of a branch relative to its stream: how much a sub-layer adds."""
HISTORY = re.compile(r"(?P<stack>.+)\.history\.(?P<layer>\d+)\.(?P<of>\d+)/history_weight")


class Quantity(NamedTuple):
    """A kind of value in an entry: its title, and what the numbers are."""

    kind: str
    title: str
    unit: str


TOTALS = (
    Quantity("loss", "loss", "bits per target token"),
    Quantity("gradient_norm", "gradient norm", "L2 norm before clipping"),
    Quantity("loss_scale", "loss scale", "factor"),
    Quantity("learning_rate", "learning rate", "step size"),
)
LINEAR = ("loss", "learning_rate")
MEASURED = (
    Quantity("gradient_norm", "Gradient norm of the parameters of each sub-layer", "L2 norm before clipping"),
    Quantity("branch_gradient_norm", "Gradient norm of each branch", "L2 norm over all positions"),
    Quantity(SHARE, "Branch by stream, root mean squares", "ratio"),
    Quantity("norm_output_rms", "Output of each LayerNorm", "root mean square"),
)
WEIGHTS = (
    Quantity("branch_scale", "Weight of the branch at each residual connection", "weight of the branch"),
    Quantity("stream_scale", "Weight of the stream at each residual connection", "weight of the stream"),
)
GRADIENTS = ("gradient_norm", "branch_gradient_norm")
KINDS = (*GRADIENTS, "branch_rms", "stream_rms", SHARE, "norm_output_rms", "branch_scale", "stream_scale")
LIGHTEST = 0.02
"""Share of the positive values below the lower end of a logarithmic scale. ReZero's gradients begin at zero, and a
scale that reaches down to its second update would hide all others."""
MADE_UP = "losses, gradients and activations of checkpoints are measured on made-up words; --data DIR uses a corpus"


class Moment(NamedTuple):
    """One entry, sorted: numbers of the whole model, of its places, and of its histories by stack, layer and state."""

    update: int
    applied: bool
    totals: dict[str, float]
    places: dict[str, dict[str, float]]
    history: dict[tuple[str, int, int], float]


Course = Sequence[Moment]
Courses = Mapping[str, Course]
"""By the label of the training."""


def moment(entry: Entry) -> Moment:
    """Sort ``entry`` by places, and add the ratio of branch and stream."""
    sorted_entry = Moment(entry.update, entry.applied, {}, {}, {})
    places: dict[str, dict[str, float]] = {}
    for name, value in entry.values.items():
        place, _, kind = name.rpartition("/")
        if match := HISTORY.fullmatch(name):
            sorted_entry.history[match["stack"], int(match["layer"]), int(match["of"])] = value
        elif place:
            places.setdefault(place, {})[kind] = value
        else:
            sorted_entry.totals[name] = value
    for place in sorted(places, key=forward_order):
        values = sorted_entry.places[place] = places[place]
        if values.get("stream_rms") and "branch_rms" in values:
            values[SHARE] = values["branch_rms"] / values["stream_rms"]
    return sorted_entry


def run_timeline(trainings: Sequence[Training], settings: Settings) -> Result:
    """Return tables of everything and figures of what was recorded."""
    courses = {training.label: [moment(entry) for entry in training.entries(settings)] for training in trainings}
    figures = [_totals_figure(courses)]
    figures += [_map_figure(courses, quantity) for quantity in MEASURED]
    figures += [_weight_figure(courses, quantity) for quantity in WEIGHTS]
    figures.append(_history_figure(courses))
    notes: list[str] = []
    for label, course in courses.items():
        gates = {place: v["branch_scale"] for place, v in course[-1].places.items() if "branch_scale" in v}
        dead = [place for place, weight in gates.items() if abs(weight) < DEAD]
        notes += _not_finite(label, course) + dead_gates(label, dead, len(gates), f" at update {course[-1].update}")
    if settings.made_up and any(training.source == CHECKPOINTS for training in trainings):
        notes.append(MADE_UP)
    return Result(list(_tables(courses)), figures, _shown(courses), notes)


def _tables(courses: Courses) -> Iterator[Table]:
    """Yield the tables that have rows: totals, places, histories."""
    moments = [(label, moment) for label, course in courses.items() for moment in course]
    kinds = _kinds([kind for kind, *_ in TOTALS], [moment.totals for _, moment in moments])
    totals = [(name, m.update, "yes" if m.applied else "no", *map(m.totals.get, kinds)) for name, m in moments]
    yield Table("timeline", ("run", "update", "applied", *kinds), tuple(totals))
    kinds = _kinds(KINDS, [values for _, moment in moments for values in moment.places.values()])
    places = [
        (name, m.update, place, *map(values.get, kinds)) for name, m in moments for place, values in m.places.items()
    ]
    if places:
        yield Table("timeline-places", ("run", "update", "place", *kinds), tuple(places))
    history = [(name, m.update, *key, weight) for name, m in moments for key, weight in m.history.items()]
    if history:
        yield Table("timeline-history", ("run", "update", "stack", "layer", "of", "weight"), tuple(history))


def _kinds(known: Sequence[str], values: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    """Return the recorded kinds: the known ones in their order, then all others."""
    there = dict.fromkeys(kind for some in values for kind in some)
    return (*(kind for kind in known if kind in there), *(kind for kind in there if kind not in known))


# --- the table of the terminal, and the lines below it --------------------------------------------------------------


def _shown(courses: Courses) -> list[list[str]]:
    header = ("run", "entries", "updates", "not applied", "gradient norm, first", "last", "largest part", "of")
    rows: list[Sequence[Any]] = []
    for label, course in courses.items():
        first, last = course[0], course[-1]
        norms = {
            place: v["gradient_norm"] for place, v in last.places.items() if "gradient_norm" in v and place_of(place)
        }
        # A norm that is not a number is larger than any other.
        place = max(norms, key=lambda name: (math.isnan(norms[name]), norms[name]), default=None)
        ends = [moment.totals.get("gradient_norm") for moment in (first, last)]
        dropped = sum(not moment.applied for moment in course)
        largest = None if place is None else norms[place]
        rows.append((label, len(course), f"{first.update} to {last.update}", dropped, *ends, largest, place))
    return cells(header, rows)


def _not_finite(label: str, course: Course) -> list[str]:
    """Return the first update with a number that is not finite, and its place: the lowest branch, else a gradient."""
    for moment in course:
        for kind in ("branch_rms", "norm_output_rms", *reversed(GRADIENTS)):
            places = [place for place, v in moment.places.items() if not math.isfinite(v.get(kind, 0.0))]
            if places:
                more = f" and {len(places) - 1} more" if len(places) > 1 else ""
                return [f"{label}: update {moment.update} is the first that is not finite: {kind} of {places[0]}{more}"]
    return []


# --- figures --------------------------------------------------------------------------------------------------------


def _totals_figure(courses: Courses) -> Figure:
    panels: list[Panel] = []
    for kind, title, unit in TOTALS:
        values = {label: [moment.totals.get(kind) for moment in course] for label, course in courses.items()}
        lines = [Line(label, _points(course, values[label])) for label, course in courses.items()]
        if any(line.points for line in lines):
            panels.append(Lines(title, UPDATES, unit, lines, log_y=kind not in LINEAR))
    return Figure("timeline", "Trainings by number of updates", panels)


def _points(course: Course, values: Sequence[float | None]) -> list[tuple[float, float]]:
    pairs = zip(course, values, strict=True)
    return [(moment.update, value) for moment, value in pairs if value is not None and math.isfinite(value)]


def _sub_layers(course: Course, kind: str) -> dict[str, list[str]]:
    """Return by stack the sub-layers with values of ``kind``, from the bottom; only places in layers."""
    stacks: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for moment in course for name, values in moment.places.items() if kind in values):
        if place := place_of(name):
            stacks.setdefault(place.stack, []).append(name)
    return stacks


def _series(course: Course, place: str, kind: str) -> list[float | None]:
    """Return the values of one place over the entries; None if an entry has none."""
    return [moment.places.get(place, {}).get(kind) for moment in course]


def _sizes(courses: Courses, kind: str) -> list[float]:
    """Return the sizes of all finite values of ``kind`` in layers."""
    places = (place for course in courses.values() for moment in course for place in moment.places.items())
    values = (values[kind] for name, values in places if kind in values and place_of(name))
    return [abs(value) for value in values if math.isfinite(value)]


def _map_figure(courses: Courses, quantity: Quantity) -> Figure:
    """Return a heat map for every training and stack, all with one scale, logarithmic unless it is short."""
    sizes = _sizes(courses, quantity.kind)
    largest = max(sizes, default=1.0) or 1.0
    positive = sorted(size for size in sizes if size > 0)
    least = positive[int(LIGHTEST * len(positive))] if positive else largest
    limits = (min(least, largest / 1.1), largest)  # a scale needs a width
    panels: list[Panel] = [
        _map(f"{label}, {stack}", course, places, quantity, limits, limits[1] >= 10 * limits[0])
        for label, course in courses.items()
        for stack, places in _sub_layers(course, quantity.kind).items()
    ]
    return Figure(f"timeline-{quantity.kind.replace('_', '-')}", quantity.title, panels)


def _map(
    title: str, course: Course, places: Sequence[str], quantity: Quantity, limits: tuple[float, float], log: bool
) -> HeatMap:
    """Return a heat map; values below the scale are clipped to it, and those that are not finite are not drawn."""
    rows = [
        [
            None if value is None or not math.isfinite(value) else max(abs(value), limits[0])
            for value in _series(course, place, quantity.kind)
        ]
        for place in places
    ]
    columns, names = [moment.update for moment in course], [_without_stack(place) for place in places]
    label = "sub-layer (layers count from 0)"
    return HeatMap(title, UPDATES, label, quantity.unit, rows, limits=limits, columns=columns, row_names=names, log=log)


def _without_stack(name: str) -> str:
    place = place_of(name)
    return name.removeprefix(f"{place.stack}.") if place else name


def _weight_figure(courses: Courses, quantity: Quantity) -> Figure:
    """Return heat map and lines for every training and stack whose weight is not always one."""
    kind = quantity.kind
    trained = {
        label: course
        for label, course in courses.items()
        if any(values.get(kind, 1.0) != 1.0 for moment in course for values in moment.places.values())
    }
    limits = (0.0, max(_sizes(trained, kind), default=1.0) or 1.0)
    absolute = quantity._replace(unit=f"|{quantity.unit}|")
    panels: list[Panel] = []
    for label, course in trained.items():
        for stack, places in _sub_layers(course, kind).items():
            title = f"{label}, {stack}"
            panels.append(_map(title, course, places, absolute, limits, log=False))
            panels.append(Lines(title, UPDATES, quantity.unit, _weight_lines(course, places, kind)))
    return Figure(f"timeline-{kind.replace('_', '-')}", quantity.title, panels)


def _weight_lines(course: Course, places: Sequence[str], kind: str) -> list[Line]:
    """Return lines of the bottom, middle and top layer; one per layer if all its sub-layers have the same weight."""
    layers: dict[str, list[str]] = {}
    for place in places:
        layers.setdefault(place.rpartition(".")[0], []).append(place)
    lines = []
    for number in _bottom_middle_top(len(layers)):
        layer, inside = list(layers.items())[number]
        curves = {place: _series(course, place, kind) for place in inside}
        if all(curve == curves[inside[0]] for curve in curves.values()):
            curves = {f"{layer}.all": curves[inside[0]]}
        lines += [Line(_without_stack(place), _points(course, curve)) for place, curve in curves.items()]
    return lines


def _bottom_middle_top(count: int) -> list[int]:
    return sorted({0, (count - 1) // 2, count - 1})


def _history_figure(courses: Courses) -> Figure:
    """Show the weights of all states in the output of each stack, the last mixture."""
    panels: list[Panel] = []
    unit = "weight in the mixture"
    for label, course in courses.items():
        for stack in dict.fromkeys(stack for moment in course for stack, _, _ in moment.history):
            top = max(layer for moment in course for name, layer, _ in moment.history if name == stack)
            rows = [[moment.history.get((stack, top, of)) for moment in course] for of in range(top + 1)]
            finite = [value for row in rows for value in row if value is not None and math.isfinite(value)]
            limits = (min([0.0, *finite]), max([0.0, *finite]))
            title, updates = f"{label}, {stack}: its output", [moment.update for moment in course]
            names = ["embedding", *(f"layers.{layer}" for layer in range(top))]
            panels.append(HeatMap(title, UPDATES, "state", unit, rows, limits=limits, columns=updates, row_names=names))
            lines = [Line(names[of], _points(course, rows[of])) for of in _bottom_middle_top(top + 1)]
            panels.append(Lines(title, UPDATES, unit, lines))
    return Figure("timeline-history", "Weights of the layers below in the output of a stack", panels)


ANALYSIS = Analysis(
    "timeline",
    "gradients, activations, alpha, omega and history weights over a training",
    "ReZero Fig. 6, Admin Fig. 8, DLCL",
    run_timeline,
    of="trainings",
)
