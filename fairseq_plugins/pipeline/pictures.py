"""Pictures of a report: curves and bars that are distinguishable in grey; matplotlib is optional."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path
from typing import Any

from fairseq_plugins.files import whole_file

# Line style, marker, colour. The colours run from dark to light in grey and are safe for the colour-blind.
LOOKS = (
    ("-", "o", "#000000"),
    ("--", "s", "#0072b2"),
    ("-.", "^", "#d55e00"),
    (":", "D", "#009e73"),
    ("-", "v", "#cc79a7"),
    ("--", "<", "#e69f00"),
    ("-.", ">", "#56b4e9"),
)


LINE = 34
"""Letters in a line of a name; the names of trainings with changed settings are long."""
BELOW = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18), "ncols": 2}
BESIDE = {"loc": "upper left", "bbox_to_anchor": (1, 1)}


def load_pyplot() -> Any | None:
    """``matplotlib.pyplot`` without a screen; None if matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def in_lines(name: str) -> str:
    """Break a long name, so that it leaves room for what it names."""
    return "\n".join(textwrap.wrap(name, LINE))


def add_legend(axis: Any, place: Mapping[str, Any]) -> None:
    """Put the legend outside the axis, where it hides nothing: ``BELOW`` or ``BESIDE`` it."""
    if axis.get_legend_handles_labels()[0]:
        axis.legend(**place, fontsize="small", frameon=False)


@dataclass(frozen=True)
class Curve:
    """Values by number of updates, under a name."""

    name: str
    points: Mapping[int, float]


def draw_curves(axis: Any, curves: Sequence[Curve]) -> None:
    """Draw ``curves`` on a matplotlib axis, each with its own line style and marker."""
    for curve, (style, marker, colour) in zip(curves, looks(), strict=False):
        points = sorted(curve.points.items())
        if points:
            axis.plot(
                *zip(*points, strict=True),
                linestyle=style,
                marker=marker,
                color=colour,
                markersize=5,
                label=in_lines(curve.name),
                markevery=max(1, len(points) // 10),
            )
    axis.set(xlabel="updates")
    axis.grid(alpha=0.3)


@dataclass(frozen=True)
class Bars:
    """Bars of one label: for each group a height and half the length of its error bar; None for no bar."""

    name: str
    heights: Sequence[float | None]
    errors: Sequence[float | None]


HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo", "+++")


def draw_bars(axis: Any, bars: Sequence[Bars], places: Sequence[str]) -> None:
    """Draw groups of ``bars`` over the names of ``places``, distinguished by shade and hatch."""
    width = 0.8 / max(1, len(bars))
    for number, (each, hatch) in enumerate(zip(bars, cycle(HATCHES), strict=False)):
        shade = str(0.35 + 0.5 * number / max(1, len(bars)))
        drawn = [place for place, height in enumerate(each.heights) if height is not None]
        for place, (height, error) in enumerate(zip(each.heights, each.errors, strict=True)):
            if height is not None:
                centre = place + (number - (len(bars) - 1) / 2) * width
                axis.bar(
                    centre,
                    height,
                    width,
                    yerr=error,
                    capsize=3,
                    color=shade,
                    edgecolor="black",
                    hatch=hatch,
                    label=each.name if place == drawn[0] else None,
                )
    axis.set_xticks(range(len(places)), [*map(in_lines, places)], rotation=90, fontsize="small")
    axis.grid(axis="y", alpha=0.3)


def looks() -> Iterator[tuple[str, str, str]]:
    """Infinite sequence of curve styles; the first 28 differ.

    After the last colour, the colours repeat with the next line style and another marker.
    """
    styles, markers = list(dict.fromkeys(style for style, *_ in LOOKS)), [marker for _, marker, _ in LOOKS]
    for number in count():
        again, place = divmod(number, len(LOOKS))
        style, _, colour = LOOKS[place]
        yield (styles[(styles.index(style) + again) % len(styles)], markers[(place + 3 * again) % len(markers)], colour)


def save(pyplot: Any, figure: Any, path: Path) -> None:
    """Write a figure as PNG, whole or not at all, and close it. Equal figures make equal files."""
    with whole_file(path) as partial:
        figure.savefig(partial, dpi=130, format="png", metadata={"Software": None})
    pyplot.close(figure)
