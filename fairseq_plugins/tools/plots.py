"""Figures that are readable without colour: plain data until they are drawn with matplotlib, an extra."""

import itertools
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fairseq_plugins.files import whole_file

NO_MATPLOTLIB = "no plots: matplotlib is not installed (pip install 'fairseq-deep[plots]'); all numbers are written"
STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "<", ">")
COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""From dark to light in grey, and safe for the colour-blind."""
HEIGHT = 3.6
"""Height of one panel in inches."""
NAME = 34
"""Letters in a line of a name; the names of trainings with changed settings are long."""
LEGEND_COLUMNS, LEGEND_ROW = 4, 0.18
"""Names in one row of a legend, and its height in inches."""
MOST_MARKERS = 12
MOST_NAMED = 18
"""Maximum number of rows of a heat map with room for their names."""

Coordinates = tuple[float, float]
Look = tuple[str, str, str]
"""Line style, marker and colour."""


def load_pyplot() -> Any | None:
    """Return ``matplotlib.pyplot`` without a screen; None if matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"axes.titlesize": 10, "axes.labelsize": 8, "legend.fontsize": 8})
    return pyplot


def look(number: int) -> Look:
    """Return the look of a curve; the first 28 differ: the colours repeat with another line style and marker."""
    again, place = divmod(number, len(COLOURS))
    shifted = place + again
    return STYLES[shifted % len(STYLES)], MARKERS[shifted % len(MARKERS)], COLOURS[place]


@dataclass(frozen=True)
class Line:
    """Points under a name; a guide is drawn thin and grey."""

    label: str
    points: Sequence[Coordinates]
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

    def draw(self, axis: Any, looks: dict[str, Look]) -> None:
        """Draw each line with its own line style and marker, the same in all panels that share ``looks``."""
        for line in self.lines:
            points = [(x, y) for x, y in line.points if not (self.log_y and y <= 0)]
            xs, ys = zip(*points, strict=True) if points else ((), ())
            if line.guide:
                axis.plot(xs, ys, color="0.6", linewidth=1, linestyle=(0, (1, 1)), label=line.label)
                continue
            style, marker, colour = looks.setdefault(line.label, look(len(looks)))
            axis.plot(
                xs,
                ys,
                linestyle=style,
                marker=marker,
                color=colour,
                markersize=4,
                # A logarithmic axis cannot show zeros, and they are not missing.
                label="\n".join(textwrap.wrap(line.label + " (0 throughout)" * bool(line.points and not points), NAME)),
                markevery=max(1, len(points) // MOST_MARKERS),
            )
        axis.set(title=self.title, xlabel=self.x_label, ylabel=self.y_label)
        if self.log_x:
            axis.set_xscale("log")
            _plain_numbers(axis.xaxis)
        elif all(float(x).is_integer() for line in self.lines for x, _ in line.points):
            axis.xaxis.get_major_locator().set_params(integer=True)
        if self.log_y:
            axis.set_yscale("log")
            _plain_numbers(axis.yaxis)
        if self.x_ticks:
            axis.set_xticks(range(1, len(self.x_ticks) + 1), self.x_ticks, rotation=60, ha="right", fontsize=7)
        axis.grid(alpha=0.3)


@dataclass(frozen=True)
class HeatMap:
    """A panel of one matrix in shades of grey; None is hatched. Row 0 is at the bottom.

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

    def draw(self, axis: Any, looks: dict[str, Look]) -> None:
        """Draw the matrix as an image."""
        values = [[math.nan if value is None else value for value in row] for row in self.values]
        rows = len(values)
        # Rasterised: a PDF with a rectangle for each cell of a long training would not open.
        image = axis.pcolormesh(
            _edges(self.columns or range(self.first_column, self.first_column + len(values[0]))),
            _edges(range(1, rows + 1)),
            values,
            cmap="gray_r",
            rasterized=True,
            norm="log" if self.log else None,
            shading="flat",
        )
        image.set_clim(*self.limits)
        axis.set(title=self.title, xlabel=self.x_label, ylabel=self.y_label)
        axis.locator_params(axis="x", integer=True)
        if self.row_names:
            every = math.ceil(rows / MOST_NAMED)
            axis.set_yticks(range(1, rows + 1, every), self.row_names[::every], fontsize=6)
        else:
            axis.locator_params(axis="y", integer=True)
        axis.patch.set(hatch="////", edgecolor="0.8")  # no value is not the same as zero
        bar = axis.figure.colorbar(image, ax=axis)
        bar.set_label(self.value_label)
        bar.ax.tick_params(labelsize=8, which="both")


Panel = Lines | HeatMap


def _plain_numbers(axis: Any) -> None:
    """Label a logarithmic axis with numbers such as 0.02 instead of 2 x 10^-2."""
    from matplotlib.ticker import LogLocator

    low, high = axis.get_view_interval()
    multiples = range(1, 10) if high <= 8 * low else (1, 2, 5) if high <= 1e4 * low else (1,)
    axis.set_major_locator(LogLocator(subs=multiples, numticks=12))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def _edges(places: Sequence[float]) -> list[float]:
    """Return the edges half-way between neighbours, with equal distances outside."""
    if len(places) == 1:
        return [places[0] - 0.5, places[0] + 0.5]
    middles = [(left + right) / 2 for left, right in itertools.pairwise(places)]
    return [2 * places[0] - middles[0], *middles, 2 * places[-1] - middles[-1]]


@dataclass(frozen=True)
class Figure:
    """Panels in rows of ``columns``, each ``width`` inches wide; ``share_y``: one scale for ``row`` or ``all``."""

    name: str
    title: str
    panels: Sequence[Panel]
    columns: int = 2
    width: float = 4.6
    share_y: Literal["none", "row", "all"] = "none"


def draw(figure: Figure, directory: Path, endings: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """Write a figure as ``NAME.ENDING``; equal numbers make equal files.

    Returns:
        The written files; none if the figure has no panels with points, or matplotlib is not installed.
    """
    pyplot = load_pyplot()
    # A language model has no line where an encoder has.
    panels = [p for p in figure.panels if not isinstance(p, Lines) or any(line.points for line in p.lines)]
    if not panels or pyplot is None:
        return []
    columns = min(figure.columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    size, shared = (columns * figure.width, rows * HEIGHT), figure.share_y
    canvas, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained", sharey=shared)
    canvas.suptitle(figure.title, fontsize=11)
    looks: dict[str, Look] = {}
    for axis, panel in zip(axes.flat, panels, strict=False):
        panel.draw(axis, looks)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    legend: dict[str, Any] = {}
    for axis in axes.flat:
        legend |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    if legend:
        # About 15 characters an inch in this size, and 8 of them for the sample of the line and the gap.
        longest = max(len(line) for label in legend for line in label.split("\n"))
        in_a_row = min(LEGEND_COLUMNS, max(1, int(15 * canvas.get_figwidth()) // (longest + 8)))
        canvas.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=in_a_row)
        canvas.set_figheight(canvas.get_figheight() + math.ceil(len(legend) / in_a_row) * LEGEND_ROW)
    files = [directory / f"{figure.name}.{ending}" for ending in endings]
    for path in files:
        save(canvas, path)
        canvas.set_layout_engine("none")  # laid out once; with many panels that takes as long as drawing them
    pyplot.close(canvas)
    return files


def save(canvas: Any, path: Path) -> None:
    """Write a figure of matplotlib as PNG or PDF, whole or not at all, without program and date."""
    ending = path.suffix[1:]
    metadata = {"Software": None} if ending == "png" else {"CreationDate": None, "Producer": None, "Creator": None}
    with whole_file(path, follow=False) as partial:
        canvas.savefig(partial, format=ending, dpi=100, metadata=metadata)
