"""Changes over a training: norms and sizes at every sub-layer, and the weights that a method trains.

Heat maps of sub-layer by update, as in Bachlechner et al., UAI 2021, figure 6 (alpha); lines of the weights at
residuals (omega of Liu et al., EMNLP 2020) and in histories (Wang et al., ACL 2019). Names are those of the recorder
(docs/recorder.md): places are those of the state dict, whose layers count from 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fairseq_plugins.core.sub_layers import forward_order, place_of
from fairseq_plugins.observe.diagnostics.results import Analysis, Result, Settings
from fairseq_plugins.observe.diagnostics.scales import DEAD, dead_gates
from fairseq_plugins.observe.diagnostics.tables import Cell, Table, cells
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
KINDS = (
    "gradient_norm",
    "branch_gradient_norm",
    "branch_rms",
    "stream_rms",
    SHARE,
    "norm_output_rms",
    "branch_scale",
    "stream_scale",
)
LIGHTEST = 0.02
"""Share of the positive values below the lower end of a logarithmic scale. ReZero's gradients begin at zero, and a
scale that reaches down to its second update would hide all others."""

MADE_UP = "losses, gradients and activations of checkpoints are measured on made-up words; --data DIR uses a corpus"

Places = dict[str, dict[str, float]]
"""Place to kind to value."""


class Moment(NamedTuple):
    """One entry, sorted: numbers of the whole model, of its places, and of its histories by stack, layer and state."""

    update: int
    applied: bool
    totals: dict[str, float]
    places: Places
    history: dict[tuple[str, int, int], float]


Course = Sequence[Moment]
Found = Mapping[str, Course]
"""By the label of the training."""


def moment(entry: Entry) -> Moment:
    """Sort ``entry`` by places, and add the ratio of branch and stream."""
    totals: dict[str, float] = {}
    places: Places = {}
    history: dict[tuple[str, int, int], float] = {}
    for name, value in entry.values.items():
        place, _, kind = name.rpartition("/")
        if match := HISTORY.fullmatch(name):
            history[match["stack"], int(match["layer"]), int(match["of"])] = value
        elif place:
            places.setdefault(place, {})[kind] = value
        else:
            totals[name] = value
    for values in places.values():
        if values.get("stream_rms") and "branch_rms" in values:
            values[SHARE] = values["branch_rms"] / values["stream_rms"]
    upwards = {place: places[place] for place in sorted(places, key=forward_order)}
    return Moment(entry.update, entry.applied, totals, upwards, history)


def run_timeline(trainings: Sequence[Training], settings: Settings) -> Result:
    """Return tables of everything and figures of what was recorded."""
    found = {one.label: [moment(entry) for entry in one.entries(settings)] for one in trainings}
    figures = [_totals_figure(found)]
    figures += [_map_figure(found, one) for one in MEASURED]
    figures += [_weight_figure(found, one) for one in WEIGHTS]
    figures.append(_history_figure(found))
    notes = [line for label, course in found.items() for line in (*_not_finite(label, course), *_dead(label, course))]
    if settings.made_up and any(one.source == CHECKPOINTS for one in trainings):
        notes.append(MADE_UP)
    tables = [_totals_table(found), _places_table(found), _history_table(found)]
    return Result([one for one in tables if one.rows], figures, _shown(found), notes)


# Tables.


def _totals_table(found: Found) -> Table:
    kinds = _kinds(found, [one.kind for one in TOTALS], lambda moment: [moment.totals])
    rows = [
        (label, moment.update, "yes" if moment.applied else "no", *(moment.totals.get(kind) for kind in kinds))
        for label, course in found.items()
        for moment in course
    ]
    return Table("timeline", ("run", "update", "applied", *kinds), tuple(rows))


def _places_table(found: Found) -> Table:
    kinds = _kinds(found, KINDS, lambda moment: moment.places.values())
    rows = [
        (label, moment.update, place, *(values.get(kind) for kind in kinds))
        for label, course in found.items()
        for moment in course
        for place, values in moment.places.items()
    ]
    return Table("timeline-places", ("run", "update", "place", *kinds), tuple(rows))


def _kinds(
    found: Found, known: Sequence[str], values: Callable[[Moment], Iterable[Mapping[str, float]]]
) -> tuple[str, ...]:
    """Return the recorded kinds: the known ones in their order, then all others."""
    there = dict.fromkeys(
        kind for course in found.values() for moment in course for some in values(moment) for kind in some
    )
    return (*(kind for kind in known if kind in there), *(kind for kind in there if kind not in known))


def _history_table(found: Found) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (label, moment.update, *key, weight)
        for label, course in found.items()
        for moment in course
        for key, weight in moment.history.items()
    ]
    return Table("timeline-history", ("run", "update", "stack", "layer", "of", "weight"), tuple(rows))


# The table of the terminal, and the lines below it.


def _shown(found: Found) -> list[list[str]]:
    header = ("run", "entries", "updates", "not applied", "gradient norm, first", "last", "largest part", "of")
    rows: list[Sequence[Any]] = []
    for label, course in found.items():
        first, last = course[0], course[-1]
        norms = {
            place: v["gradient_norm"] for place, v in last.places.items() if "gradient_norm" in v and place_of(place)
        }
        place = max(norms, key=lambda one: math.inf if math.isnan(norms[one]) else norms[one]) if norms else None
        rows.append(
            (
                label,
                len(course),
                f"{first.update} to {last.update}",
                sum(not one.applied for one in course),
                first.totals.get("gradient_norm"),
                last.totals.get("gradient_norm"),
                None if place is None else norms[place],
                place,
            )
        )
    return cells(header, rows)


def _not_finite(label: str, course: Course) -> list[str]:
    """Return the first update with a number that is not finite, and its place: the lowest branch, else a gradient."""
    for moment in course:
        for kind in ("branch_rms", "norm_output_rms", "branch_gradient_norm", "gradient_norm"):
            places = [place for place, v in moment.places.items() if not math.isfinite(v.get(kind, 0.0))]
            if places:
                more = f" and {len(places) - 1} more" if len(places) > 1 else ""
                return [f"{label}: update {moment.update} is the first that is not finite: {kind} of {places[0]}{more}"]
    return []


def _dead(label: str, course: Course) -> list[str]:
    last = course[-1]
    gates = {place: v["branch_scale"] for place, v in last.places.items() if "branch_scale" in v}
    dead = [place for place, weight in gates.items() if abs(weight) < DEAD]
    return dead_gates(label, dead, len(gates), f" at update {last.update}")


# Figures.


def _totals_figure(found: Found) -> Figure:
    panels: list[Panel] = []
    for kind, title, unit in TOTALS:
        lines = [
            Line(label, [(m.update, m.totals[kind]) for m in course if math.isfinite(m.totals.get(kind, math.nan))])
            for label, course in found.items()
        ]
        if any(line.points for line in lines):
            panels.append(Lines(title, UPDATES, unit, lines, log_y=kind not in LINEAR))
    return Figure("timeline", "Trainings by number of updates", panels)


def sub_layers(course: Course, kind: str) -> dict[str, list[str]]:
    """Return by stack the sub-layers with values of ``kind``, from the bottom; only places in layers."""
    stacks: dict[str, list[str]] = {}
    for place in dict.fromkeys(place for one in course for place, values in one.places.items() if kind in values):
        if where := place_of(place):
            stacks.setdefault(where.stack, []).append(place)
    return stacks


def series(course: Course, place: str, kind: str) -> list[float | None]:
    """Return the values of one place over the entries; None if an entry has none."""
    return [one.places.get(place, {}).get(kind) for one in course]


def _short(place: str) -> str:
    """Return a place without its stack, which is in the title of the panel."""
    where = place_of(place)
    return place.removeprefix(f"{where.stack}.") if where else place


def _map_figure(found: Found, what: Quantity) -> Figure:
    """Return a heat map for every training and stack, all with one scale, logarithmic unless it is short."""
    limits = _limits(found, what.kind)
    log = limits[1] >= 10 * limits[0]
    panels: list[Panel] = [
        _map(f"{label}, {stack}", course, places, what, limits, log)
        for label, course in found.items()
        for stack, places in sub_layers(course, what.kind).items()
    ]
    return Figure(f"timeline-{what.kind.replace('_', '-')}", what.title, panels)


def _map(
    title: str, course: Course, places: Sequence[str], what: Quantity, limits: tuple[float, float], log: bool
) -> HeatMap:
    rows = [[_drawable(value, limits[0]) for value in series(course, place, what.kind)] for place in places]
    return HeatMap(
        title,
        UPDATES,
        "sub-layer (layers count from 0)",
        what.unit,
        rows,
        limits=limits,
        columns=[one.update for one in course],
        row_names=[_short(place) for place in places],
        log=log,
    )


def _drawable(value: float | None, least: float) -> float | None:
    """Clip a value (zero too) to the lower end of the scale; a value that is not finite is not drawn."""
    return None if value is None or not math.isfinite(value) else max(abs(value), least)


def _finite(found: Found, kind: str) -> list[float]:
    return [
        abs(values[kind])
        for course in found.values()
        for one in course
        for place, values in one.places.items()
        if math.isfinite(values.get(kind, math.nan)) and place_of(place)
    ]


def _largest(found: Found, kind: str) -> float:
    return max(_finite(found, kind), default=1.0) or 1.0


def _limits(found: Found, kind: str) -> tuple[float, float]:
    """Return the lower and upper end of a scale above zero."""
    largest = _largest(found, kind)
    positive = sorted(value for value in _finite(found, kind) if value > 0)
    least = positive[int(LIGHTEST * len(positive))] if positive else largest
    return min(least, largest / 1.1), largest  # a scale needs a width


def _weight_figure(found: Found, what: Quantity) -> Figure:
    """Return heat map and lines for every training and stack whose weight is not always one."""
    trained = {
        label: course
        for label, course in found.items()
        if any(v.get(what.kind, 1.0) != 1.0 for one in course for v in one.places.values())
    }
    limits = (0.0, _largest(trained, what.kind))
    absolute = what._replace(unit=f"|{what.unit}|")
    panels: list[Panel] = []
    for label, course in trained.items():
        for stack, places in sub_layers(course, what.kind).items():
            title = f"{label}, {stack}"
            panels.append(_map(title, course, places, absolute, limits, log=False))
            panels.append(Lines(title, UPDATES, what.unit, _weight_lines(course, places, what.kind)))
    return Figure(f"timeline-{what.kind.replace('_', '-')}", what.title, panels)


def some_of(count: int) -> list[int]:
    """Return the bottom, the middle and the top of ``count`` layers."""
    return sorted({0, (count - 1) // 2, count - 1})


def _weight_lines(course: Course, places: Sequence[str], kind: str) -> list[Line]:
    """Return lines of the bottom, middle and top layer; one per layer if all its sub-layers have the same weight."""
    layers: dict[str, list[str]] = {}
    for place in places:
        layers.setdefault(place.rpartition(".")[0], []).append(place)
    chosen = [list(layers.items())[number] for number in some_of(len(layers))]
    lines = []
    for layer, inside in chosen:
        curves = {place: series(course, place, kind) for place in inside}
        if all(curve == curves[inside[0]] for curve in curves.values()):
            curves = {f"{layer}.all": curves[inside[0]]}
        lines += [Line(_short(place), _points(course, curve)) for place, curve in curves.items()]
    return lines


def _points(course: Course, values: Sequence[float | None]) -> list[tuple[float, float]]:
    pairs = zip(course, values, strict=True)
    return [(one.update, value) for one, value in pairs if value is not None and math.isfinite(value)]


def _history_figure(found: Found) -> Figure:
    """Show the weights of all states in the output of each stack, the last mixture."""
    panels: list[Panel] = []
    for label, course in found.items():
        for stack in dict.fromkeys(stack for one in course for stack, _, _ in one.history):
            top = max(layer for one in course for name, layer, _ in one.history if name == stack)
            rows = [[one.history.get((stack, top, of)) for one in course] for of in range(top + 1)]
            finite = [value for row in rows for value in row if value is not None and math.isfinite(value)]
            limits = (min([0.0, *finite]), max([0.0, *finite]))
            title = f"{label}, {stack}: its output"
            names = [_state(of) for of in range(top + 1)]
            panels.append(
                HeatMap(
                    title,
                    UPDATES,
                    "state",
                    "weight in the mixture",
                    rows,
                    limits=limits,
                    columns=[one.update for one in course],
                    row_names=names,
                )
            )
            lines = [Line(names[of], _points(course, rows[of])) for of in some_of(top + 1)]
            panels.append(Lines(title, UPDATES, "weight in the mixture", lines))
    return Figure("timeline-history", "Weights of the layers below in the output of a stack", panels)


def _state(of: int) -> str:
    return "embedding" if of == 0 else f"layers.{of - 1}"


ANALYSIS = Analysis(
    "timeline",
    "gradients, activations, alpha, omega and history weights over a training",
    "ReZero Fig. 6, Admin Fig. 8, DLCL",
    run_timeline,
    of="trainings",
)
