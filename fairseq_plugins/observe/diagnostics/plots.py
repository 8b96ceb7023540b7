"""Plots that are readable without colour. A figure is plain data until it is drawn; only this file uses matplotlib."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fairseq_plugins.files import whole_file
from fairseq_plugins.pipeline.pictures import load_pyplot, looks

NO_MATPLOTLIB = "no plots: matplotlib is not installed (pip install 'fairseq-deep[plots]'); all numbers are written"
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "oo")
ENDINGS = ("png", "pdf")
HEIGHT, TILTED = 3.2, 0.6
"""Size of one panel in inches, and of the names below it if they are tilted."""
BAR, WIDE, WIDEST = 0.11, 9.0, 24.0
"""Inches of one bar or range, of a panel without room for another beside it, and of the widest panel."""
MOST_ROWS = 8
"""Maximum number of panels; with more, a row has twice as many."""
LEGEND_COLUMNS, LEGEND_ROW = 4, 0.18
"""Names in one row of a legend, and its height in inches."""
LOG_TICKS = ((8.0, range(1, 10)), (1e4, (1, 2, 5)), (math.inf, (1,)))
"""Multiples of powers of ten with tick labels, by the maximum ratio of the ends of an axis."""
MOST_MARKERS = 12
MOST_NAMED = 18
"""Maximum number of rows of a heat map with room for their names."""
MOST_WRITTEN = 8
"""Maximum numbers of rows and columns for values inside a heat map."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """Points under a name; a guide is drawn thin and grey."""

    label: str
    points: Sequence[Point]
    guide: bool = False


@dataclass(frozen=True)
class Lines:
    """A panel of lines."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False
    x_ticks: Sequence[str] = ()


@dataclass(frozen=True)
class HeatMap:
    """A panel of one matrix; None is hatched. Row 0 is at the bottom.

    Columns are at whole numbers from ``first_column`` on, or at those of ``columns``, which increase. With ``log`` the
    shades are logarithmic, and every value and limit is above zero.
    """

    title: str
    x_label: str
    y_label: str
    value_label: str
    values: Sequence[Sequence[float | None]]
    first_column: int = 1
    limits: tuple[float | None, float | None] = (None, None)
    columns: Sequence[float] = ()
    row_names: Sequence[str] = ()
    log: bool = False


@dataclass(frozen=True)
class Bars:
    """A panel of bars: for each category one of every series; None leaves a gap."""

    title: str
    y_label: str
    categories: Sequence[str]
    series: Sequence[tuple[str, Sequence[float | None]]]
    base: float = 0.0


@dataclass(frozen=True)
class Ranges:
    """A panel of least, median and largest value: for each category one of every series; the axis is logarithmic."""

    title: str
    y_label: str
    categories: Sequence[str]
    series: Sequence[tuple[str, Sequence[tuple[float, float, float] | None]]]


Panel = Lines | HeatMap | Bars | Ranges
Styles = Mapping[str, tuple[str, str, str]]
"""Name to line style, marker and colour."""


@dataclass(frozen=True)
class Figure:
    """Panels in rows of ``columns``, each ``width`` inches wide; ``share_y``: one scale for ``row`` or ``all``."""

    name: str
    title: str
    panels: Sequence[Panel]
    columns: int = 2
    width: float = 4.6
    share_y: Literal["none", "row", "all"] = "none"


def available() -> bool:
    """Return whether plots can be drawn."""
    return load_pyplot() is not None


def draw(figure: Figure, directory: Path) -> list[Path]:
    """Write a figure as PNG and PDF; nothing if it has no panels.

    Returns:
        The written files.
    """
    if not figure.panels:
        return []
    pyplot = load_pyplot()
    assert pyplot is not None
    styles = _styles(figure)
    rows, columns, size = _layout(figure)
    canvas, axes = pyplot.subplots(
        rows, columns, figsize=size, squeeze=False, layout="constrained", sharey=figure.share_y
    )
    canvas.suptitle(figure.title, fontsize=11)
    for axis, panel in zip(axes.flat, figure.panels, strict=False):
        DRAWN_BY[type(panel)](axis, panel, styles)
        axis.title.set_fontsize(10)
        axis.xaxis.label.set_fontsize(8)
        axis.yaxis.label.set_fontsize(8)
    for axis in axes.flat[len(figure.panels) :]:
        axis.set_visible(False)
    _one_legend(canvas, axes)
    files = []
    for ending in ENDINGS:
        path = directory / f"{figure.name}.{ending}"
        # Without program and date, so that equal numbers make equal files.
        metadata = {"Software": None} if ending == "png" else {"CreationDate": None, "Producer": None, "Creator": None}
        with whole_file(path) as partial:
            canvas.savefig(partial, format=ending, dpi=100, metadata=metadata)
        canvas.set_layout_engine("none")  # laid out once; with many panels that takes as long as drawing them
        files.append(path)
    pyplot.close(canvas)
    return files


def _layout(figure: Figure) -> tuple[int, int, tuple[float, float]]:
    """Rows, columns, and width and height in inches."""
    width = min(WIDEST, max(figure.width, *map(_least_width, figure.panels)))
    wanted = 2 * figure.columns if len(figure.panels) > MOST_ROWS * figure.columns else figure.columns
    columns = 1 if width > WIDE else min(wanted, len(figure.panels))
    rows = math.ceil(len(figure.panels) / columns)
    height = HEIGHT + (TILTED if any(map(_is_tilted, figure.panels)) else 0)
    return rows, columns, (width * columns, height * rows + 0.8 + len(_names(figure)) / LEGEND_COLUMNS * LEGEND_ROW)


def _one_legend(canvas: Any, axes: Any) -> None:
    """Draw a legend below the panels with every name once."""
    named = {
        label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    if named:
        # About 15 characters an inch in this size, and 8 of them for the sample of the line and the gap.
        room = int(15 * canvas.get_figwidth()) // (max(map(len, named)) + 8)
        columns = min(LEGEND_COLUMNS, max(1, room))
        canvas.legend(named.values(), named.keys(), loc="outside lower center", ncols=columns, fontsize=8)


def _names(figure: Figure) -> list[str]:
    """Return every name in the figure once."""
    return list(dict.fromkeys(label for panel in figure.panels for label in _labels(panel)))


def _styles(figure: Figure) -> Styles:
    """Return the style of each name in all panels of the figure."""
    return dict(zip(_names(figure), looks(), strict=False))


def _least_width(panel: Panel) -> float:
    """Return the inches that the bars of a panel need; 0 without bars."""
    return BAR * len(panel.series) * len(panel.categories) if isinstance(panel, (Bars, Ranges)) else 0.0


def _is_tilted(panel: Panel) -> bool:
    return isinstance(panel, (Bars, Ranges)) or (isinstance(panel, Lines) and bool(panel.x_ticks))


def _labels(panel: Panel) -> list[str]:
    if isinstance(panel, Lines):
        return [line.label for line in panel.lines if not line.guide]
    return [] if isinstance(panel, HeatMap) else [label for label, _ in panel.series]


def _draw_lines(axis: Any, panel: Lines, styles: Styles) -> None:
    unseen = []
    for line in panel.lines:
        drawable = [(x, y) for x, y in line.points if not (panel.log_y and y <= 0)]
        if line.guide:
            axis.plot(*_columns(drawable), color="0.6", linewidth=1, linestyle=(0, (1, 1)), label=line.label)
            continue
        style, marker, colour = styles[line.label]
        axis.plot(
            *_columns(drawable),
            linestyle=style,
            marker=marker,
            color=colour,
            markersize=4,
            label=line.label,
            markevery=max(1, len(drawable) // MOST_MARKERS),
        )
        unseen += [line.label] if line.points and not drawable else []
    axis.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    _name_zeros(axis, unseen)
    _set_scales(axis, panel)
    if panel.x_ticks:
        axis.set_xticks(range(1, len(panel.x_ticks) + 1), panel.x_ticks, rotation=60, ha="right", fontsize=7)
    axis.grid(alpha=0.3)


def _name_zeros(axis: Any, labels: Sequence[str]) -> None:
    """Name series of zeros below the axis: a logarithmic axis cannot show them, and they are not missing."""
    if labels:
        text = textwrap.fill(f"0 throughout: {', '.join(labels)}", width=int(14 * axis.figure.get_figwidth() / 2))
        axis.set_xlabel("\n".join(filter(None, [axis.get_xlabel(), text])))


def _set_scales(axis: Any, panel: Lines) -> None:
    if panel.log_x:
        axis.set_xscale("log")
        _plain_numbers(axis.xaxis)
    elif all(float(x).is_integer() for line in panel.lines for x, _ in line.points):
        axis.xaxis.get_major_locator().set_params(integer=True)
    if panel.log_y:
        axis.set_yscale("log")
        _plain_numbers(axis.yaxis)


def _plain_numbers(axis: Any) -> None:
    """0.02 and not 2 x 10^-2."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    multiples = next(some for span, some in LOG_TICKS if high <= span * low)
    axis.set_major_locator(LogLocator(subs=multiples, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _columns(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _draw_heat_map(axis: Any, panel: HeatMap, styles: Styles) -> None:
    values = [[math.nan if value is None else value for value in row] for row in panel.values]
    low, high = panel.limits
    rows, columns = len(values), len(values[0])
    places = panel.columns or range(panel.first_column, panel.first_column + columns)
    # Rasterised: a PDF with a rectangle for each cell of a long training would not open.
    image = axis.pcolormesh(
        _edges(places),
        _edges(range(1, rows + 1)),
        values,
        cmap="gray_r",
        rasterized=True,
        norm="log" if panel.log else None,
        shading="flat",
    )
    image.set_clim(low, high)
    axis.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    axis.locator_params(axis="x", integer=True)
    _name_rows(axis, panel)
    axis.patch.set(hatch="////", edgecolor="0.8")  # no value is not the same as zero
    bar = axis.figure.colorbar(image, ax=axis)
    bar.set_label(panel.value_label, fontsize=8)
    bar.ax.tick_params(labelsize=8, which="both")
    if max(rows, columns) <= MOST_WRITTEN and not panel.columns:
        _write_values(axis, panel, image.norm)


def _edges(places: Sequence[float]) -> list[float]:
    """Return the edges half-way between neighbours, with the same distance outside."""
    if len(places) == 1:
        return [places[0] - 0.5, places[0] + 0.5]
    middles = [(left + right) / 2 for left, right in itertools.pairwise(places)]
    return [2 * places[0] - middles[0], *middles, 2 * places[-1] - middles[-1]]


def _name_rows(axis: Any, panel: HeatMap) -> None:
    if not panel.row_names:
        axis.locator_params(axis="y", integer=True)
        return
    every = math.ceil(len(panel.row_names) / MOST_NAMED)
    axis.set_yticks(range(1, len(panel.row_names) + 1, every), panel.row_names[::every], fontsize=6)


def _write_values(axis: Any, panel: HeatMap, darkness: Callable[[float], float]) -> None:
    for i, row in enumerate(panel.values):
        for j, value in enumerate(row):
            if value is not None:
                colour = "white" if darkness(value) > 0.5 else "black"
                axis.text(
                    j + panel.first_column, i + 1, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour
                )


def _draw_bars(axis: Any, panel: Bars, styles: Styles) -> None:
    width = 0.8 / len(panel.series)
    for number, (label, values) in enumerate(panel.series):
        places = [place + (number - (len(panel.series) - 1) / 2) * width for place in range(len(values))]
        heights = [math.nan if value is None else value - panel.base for value in values]
        shade = str(0.25 + 0.65 * number / max(1, len(panel.series) - 1))
        axis.bar(
            places,
            heights,
            width,
            bottom=panel.base,
            color=shade,
            edgecolor="black",
            linewidth=0.6,
            hatch=HATCHES[number % len(HATCHES)],
            label=label,
        )
    axis.axhline(panel.base, color="black", linewidth=0.8)
    _name_categories(axis, panel)


def _draw_ranges(axis: Any, panel: Ranges, styles: Styles) -> None:
    step, unseen = 0.8 / len(panel.series), []
    for number, (label, values) in enumerate(panel.series):
        _, marker, colour = styles[label]
        known = [(place, value) for place, value in enumerate(values) if value is not None and value[1] > 0]
        places = [place + (number - (len(panel.series) - 1) / 2) * step for place, _ in known]
        middles = [middle for _, (_, middle, _) in known]
        reach = [[m - low for _, (low, m, _) in known], [high - m for _, (_, m, high) in known]]
        axis.errorbar(places, middles, yerr=reach, fmt=marker, color=colour, markersize=4, capsize=2, label=label)
        unseen += [label] if values and not known else []
    axis.set_yscale("log")
    _plain_numbers(axis.yaxis)
    _name_categories(axis, panel)
    _name_zeros(axis, unseen)


def _name_categories(axis: Any, panel: Bars | Ranges) -> None:
    axis.set_xticks(range(len(panel.categories)), panel.categories, rotation=45, ha="right", fontsize=7)
    axis.set(title=panel.title, ylabel=panel.y_label)
    axis.grid(axis="y", alpha=0.3)


DRAWN_BY: dict[type, Callable[[Any, Any, Styles], None]] = {
    Lines: _draw_lines,
    HeatMap: _draw_heat_map,
    Bars: _draw_bars,
    Ranges: _draw_ranges,
}
