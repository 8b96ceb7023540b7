"""What is drawn where: room for every panel, one look for a name, and what a scale has no place for."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from fairseq_plugins import plots
from fairseq_plugins.plots import Bars, Figure, HeatMap, Line, Lines, Panel, Ranges, load_pyplot, looks


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


def test_a_name_is_once_in_the_legend() -> None:
    assert Figure("f", "t", [lines("a", "b"), lines("c", "b")]).labels == ["a", "b", "c"]


def test_a_name_looks_the_same_in_every_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    canvases: list[Any] = []
    monkeypatch.setattr(plots, "save", lambda canvas, path: canvases.append(canvas))
    assert plots.draw(Figure("f", "t", [lines("a", "b"), lines("c", "b")]), tmp_path, ["png"]) == [tmp_path / "f.png"]
    seen = [
        (line.get_label(), line.get_linestyle(), line.get_color()) for axis in canvases[0].axes for line in axis.lines
    ]
    assert seen[1] == seen[3]
    assert len(set(seen)) == 3
    (legend,) = canvases[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]


def test_many_curves_look_different() -> None:
    some = looks()
    assert len({next(some) for _ in range(28)}) == 28


def test_many_maps_stand_four_in_a_row() -> None:
    for methods, wanted in ((3, 2), (8, 2), (9, 4), (25, 4)):
        panels: list[Panel] = [HeatMap("", "x", "y", "v", [[1.0]])] * (2 * methods)
        rows, columns, (width, height) = Figure("f", "t", panels).layout
        assert columns == wanted
        assert (rows - 1) * columns < len(panels) <= rows * columns
        assert width / columns == 4.6
        assert height > 3 * rows


def test_bars_of_many_methods_have_room() -> None:
    for kind, methods in itertools.product((Bars, Ranges), (2, 25)):
        panel: Panel = kind("", "y", ["one", "two"] * 3, [(str(number), [None] * 6) for number in range(methods)])
        _, columns, (width, _) = Figure("f", "t", [panel] * 4).layout
        assert width / columns >= 0.1 * methods * 6
        assert columns == (1 if methods == 25 else 2)


def test_what_is_zero_throughout_is_named_below_a_logarithmic_axis(axis: Any) -> None:
    panel = Lines("t", "updates", "norm", [Line("full", [(1, 2.0)]), Line("void", [(1, 0.0)])], log_y=True)
    panel.draw(axis, dict(zip(panel.labels, looks(), strict=False)))
    assert axis.get_xlabel() == "updates\n0 throughout: void"
    assert not axis.texts


def test_ranges_of_zeros_are_named(axis: Any) -> None:
    panel = Ranges("t", "norm", ["one"], [("full", [(1.0, 2.0, 3.0)]), ("void", [(0.0, 0.0, 0.0)])])
    panel.draw(axis, dict(zip(panel.labels, looks(), strict=False)))
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
    panel.draw(axis, {})
    (mesh,) = axis.collections
    assert mesh.get_array().tolist() == values
    assert mesh.get_coordinates()[0, :, 0].tolist() == [5, 15, 30, 50]
    # Half-way between 1 and 100 on a logarithmic scale.
    assert float(mesh.norm(10.0)) == pytest.approx(0.5)
    assert [label.get_text() for label in axis.get_yticklabels()] == ["low", "high"]


def test_only_some_of_many_rows_are_named(axis: Any) -> None:
    names = [f"layers.{number}" for number in range(100)]
    panel = HeatMap("t", "x", "y", "v", [[1.0]] * 100, row_names=names, columns=[1])
    panel.draw(axis, {})
    shown = [label.get_text() for label in axis.get_yticklabels()]
    assert shown == names[:: len(names) // len(shown) + 1][: len(shown)]
    assert 10 <= len(shown) <= 18


@pytest.mark.parametrize(("high", "named"), [(3.0, [1, 2, 3]), (100.0, [1, 2, 5, 10, 20, 50, 100])])
def test_numbers_of_a_logarithmic_axis(axis: Any, high: float, named: list[float]) -> None:
    panel = Lines("t", "x", "y", [Line("one", [(1, 1.0), (2, high)])], log_y=True)
    panel.draw(axis, dict(zip(panel.labels, looks(), strict=False)))
    low, top = axis.get_ylim()
    assert [tick for tick in axis.get_yticks() if low <= tick <= top] == pytest.approx(named)


def test_a_bar_without_a_value_is_a_gap_and_long_names_are_broken(axis: Any) -> None:
    long = "t_fixup_6e6d warmup_init_lr=1e-07 warmup_updates=200"
    Bars("", "", ["diverged", long], [("test", [None, 2.0])], errors=[[None, 0.5]]).draw(axis, {})
    assert [height for bar in axis.patches if (height := bar.get_height()) > 0] == [2.0]
    names = axis.get_xticklabels()[1].get_text().splitlines()
    assert " ".join(names) == long
    assert max(map(len, names)) <= plots.NAME
    assert axis.get_legend_handles_labels()[1] == ["test"]
