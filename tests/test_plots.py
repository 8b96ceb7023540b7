"""Places of a drawing: room for every panel, one look for a name, and values that a scale has no place for."""

from pathlib import Path
from typing import Any

import pytest

from fairseq_plugins.tools import plots
from fairseq_plugins.tools.plots import Figure, HeatMap, Line, Lines, Panel, load_pyplot, look


@pytest.fixture
def axis() -> Any:
    pyplot = load_pyplot()
    assert pyplot is not None
    canvas, axis = pyplot.subplots(figsize=(8, 3))
    yield axis
    pyplot.close(canvas)


def canvas_of(monkeypatch: pytest.MonkeyPatch, panels: list[Panel]) -> Any:
    """The drawing of two columns, which is not written."""
    canvases: list[Any] = []
    monkeypatch.setattr(plots, "save", lambda canvas, path: canvases.append(canvas))
    assert plots.draw(Figure("f", "t", panels), Path("there"), ["png"]) == [Path("there/f.png")]
    return canvases[0]


def test_a_name_looks_the_same_in_every_panel_and_is_once_in_the_legend(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (Lines("", "x", "y", [Line(name, [(1, 1), (2, 3)]) for name in names]) for names in ("ab", "cb"))
    canvas = canvas_of(monkeypatch, [first, second])
    seen = [(line.get_label(), line.get_linestyle(), line.get_color()) for axis in canvas.axes for line in axis.lines]
    assert seen[1] == seen[3]
    assert len(set(seen)) == 3
    (legend,) = canvas.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]
    assert len({look(number) for number in range(28)}) == 28


def test_what_is_zero_throughout_is_named_in_the_legend_of_a_logarithmic_axis(axis: Any) -> None:
    lines = [Line("full", [(1, 2.0)]), Line("void", [(1, 0.0)]), Line("absent", [])]
    Lines("t", "updates", "norm", lines, log_y=True).draw(axis, {})
    assert axis.get_legend_handles_labels()[1] == ["full", "void (0 throughout)", "absent"]


def test_cells_stand_where_their_updates_are(axis: Any) -> None:
    values, limits = [[1.0, None, 100.0], [10.0, 1.0, 1.0]], (1.0, 100.0)
    names = ["low", "high"]
    HeatMap("", "x", "y", "v", values, limits=limits, columns=[10, 20, 40], row_names=names, log=True).draw(axis, {})
    (mesh,) = axis.collections
    assert mesh.get_array().tolist() == values
    assert mesh.get_coordinates()[0, :, 0].tolist() == [5, 15, 30, 50]
    # Half-way between 1 and 100 on a logarithmic scale.
    assert float(mesh.norm(10.0)) == pytest.approx(0.5)
    assert [label.get_text() for label in axis.get_yticklabels()] == names


def test_only_some_of_many_rows_are_named(axis: Any) -> None:
    names = [f"layers.{number}" for number in range(100)]
    HeatMap("t", "x", "y", "v", [[1.0]] * 100, row_names=names, columns=[1]).draw(axis, {})
    shown = [label.get_text() for label in axis.get_yticklabels()]
    assert shown == names[:: len(names) // len(shown) + 1][: len(shown)]
    assert 10 <= len(shown) <= 18


@pytest.mark.parametrize(("high", "named"), [(3.0, [1, 2, 3]), (100.0, [1, 2, 5, 10, 20, 50, 100])])
def test_numbers_of_a_logarithmic_axis(axis: Any, high: float, named: list[float]) -> None:
    Lines("t", "x", "y", [Line("one", [(1, 1.0), (2, high)])], log_y=True).draw(axis, {})
    low, top = axis.get_ylim()
    assert [tick for tick in axis.get_yticks() if low <= tick <= top] == pytest.approx(named)


def test_long_names_are_broken(axis: Any) -> None:
    long = "t_fixup_6e6d warmup_init_lr=1e-07 warmup_updates=200"
    Lines("", "x", "y", [Line(long, [(1, 1.0)])]).draw(axis, {})
    names = axis.get_legend_handles_labels()[1][0].splitlines()
    assert " ".join(names) == long
    assert max(map(len, names)) <= plots.NAME
