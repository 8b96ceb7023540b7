"""What is drawn where: room for every panel, one look for a name, and what a scale has no place for."""

from __future__ import annotations

from typing import Any

import pytest

from fairseq_plugins.observe.diagnostics import plots
from fairseq_plugins.observe.diagnostics.plots import Bars, Figure, HeatMap, Line, Lines, Panel, Ranges
from fairseq_plugins.pipeline.pictures import load_pyplot, looks


@pytest.fixture
def axis() -> Any:
    pyplot = load_pyplot()
    assert pyplot is not None
    canvas, one = pyplot.subplots(figsize=(8, 3))
    yield one
    pyplot.close(canvas)


def lines(*names: str) -> Lines:
    return Lines("title", "x", "y", [Line(name, [(1, 1), (2, 3)]) for name in names], log_y=True)


def test_edges_of_cells_lie_half_way() -> None:
    assert plots._edges([1, 2, 3]) == [0.5, 1.5, 2.5, 3.5]
    assert plots._edges([100, 200, 600]) == [50, 150, 400, 800]
    assert plots._edges([7]) == [6.5, 7.5]


def test_a_name_looks_the_same_in_every_panel() -> None:
    styles = plots._styles(Figure("f", "t", [lines("a", "b"), lines("c", "b")]))
    assert list(styles) == ["a", "b", "c"]
    assert len(set(styles.values())) == 3


def test_many_curves_look_different() -> None:
    some = looks()
    assert len({next(some) for _ in range(28)}) == 28


@pytest.mark.parametrize(("methods", "columns"), [(3, 2), (8, 2), (9, 4), (25, 4)])
def test_many_maps_stand_four_in_a_row(methods: int, columns: int) -> None:
    panels: list[Panel] = [HeatMap("", "x", "y", "v", [[1.0]])] * (2 * methods)
    rows, found, (width, height) = plots._layout(Figure("f", "t", panels))
    assert found == columns
    assert (rows - 1) * columns < len(panels) <= rows * columns
    assert width / columns == 4.6
    assert height > 3 * rows


@pytest.mark.parametrize("kind", [Bars, Ranges])
def test_bars_of_many_methods_have_room(kind: Any) -> None:
    for methods in (2, 25):
        panel = kind("", "y", ["one", "two"] * 3, [(str(number), [None] * 6) for number in range(methods)])
        _, columns, (width, _) = plots._layout(Figure("f", "t", [panel] * 4))
        assert width / columns >= 0.1 * methods * 6
        assert columns == (1 if methods == 25 else 2)


def test_what_is_zero_throughout_is_named_below_a_logarithmic_axis(axis: Any) -> None:
    panel = Lines("t", "updates", "norm", [Line("full", [(1, 2.0)]), Line("void", [(1, 0.0)])], log_y=True)
    plots._draw_lines(axis, panel, plots._styles(Figure("f", "t", [panel])))
    assert axis.get_xlabel() == "updates\n0 throughout: void"
    assert not axis.texts


def test_ranges_of_zeros_are_named(axis: Any) -> None:
    panel = Ranges("t", "norm", ["one"], [("full", [(1.0, 2.0, 3.0)]), ("void", [(0.0, 0.0, 0.0)])])
    plots._draw_ranges(axis, panel, plots._styles(Figure("f", "t", [panel])))
    assert axis.get_xlabel() == "0 throughout: void"


def test_cells_stand_where_their_updates_are(axis: Any) -> None:
    values = [[1.0, None, 100.0], [10.0, 1.0, 1.0]]
    panel = HeatMap(
        "t",
        "updates",
        "place",
        "norm",
        values,
        limits=(1.0, 100.0),
        columns=[10, 20, 40],
        row_names=["low", "high"],
        log=True,
    )
    plots._draw_heat_map(axis, panel, {})
    (mesh,) = axis.collections
    assert mesh.get_array().tolist() == values
    assert mesh.get_coordinates()[0, :, 0].tolist() == [5, 15, 30, 50]
    # Half-way between 1 and 100 on a logarithmic scale.
    assert float(mesh.norm(10.0)) == pytest.approx(0.5)
    assert [label.get_text() for label in axis.get_yticklabels()] == ["low", "high"]


def test_only_some_of_many_rows_are_named(axis: Any) -> None:
    names = [f"layers.{number}" for number in range(100)]
    panel = HeatMap("t", "x", "y", "v", [[1.0]] * 100, row_names=names, columns=[1])
    plots._draw_heat_map(axis, panel, {})
    shown = [label.get_text() for label in axis.get_yticklabels()]
    assert shown == names[:: len(names) // len(shown) + 1][: len(shown)]
    assert 10 <= len(shown) <= 18


@pytest.mark.parametrize(("high", "named"), [(3.0, [1, 2, 3]), (100.0, [1, 2, 5, 10, 20, 50, 100])])
def test_numbers_of_a_logarithmic_axis(axis: Any, high: float, named: list[float]) -> None:
    panel = Lines("t", "x", "y", [Line("one", [(1, 1.0), (2, high)])], log_y=True)
    plots._draw_lines(axis, panel, plots._styles(Figure("f", "t", [panel])))
    low, top = axis.get_ylim()
    assert [tick for tick in axis.get_yticks() if low <= tick <= top] == pytest.approx(named)
