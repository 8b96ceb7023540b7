"""Numbers on disk: one table per file, as CSV for reading back and as JSON with a description of the measurement."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.files import write_whole
from fairseq_plugins.tables import strict_json

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """Rows in long form: one measurement each, the model's name first.

    Attributes:
        name: name of its files, without suffix.
        columns: the meaning of the cells.
        rows: the cells; None if there is no number.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def as_csv(self) -> str:
        """Return CSV with a header; a missing number is an empty cell."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_csv_cell(cell) for cell in row] for row in self.rows)
        return text.getvalue()

    def as_dict(self) -> dict[str, Any]:
        """Columns and rows, for JSON."""
        return {"columns": list(self.columns), "rows": [list(row) for row in self.rows]}


def of_records(name: str, found: Mapping[str, Iterable[Any]]) -> Table:
    """Return a table of named tuples of one class, by the label of their model."""
    rows = [(label, record) for label, records in found.items() for record in records]
    columns: tuple[str, ...] = ("model", *(rows[0][1]._fields if rows else ()))
    return Table(name, columns, tuple((label, *record) for label, record in rows))


def of_matrices(
    name: str, cells: tuple[str, str, str], found: Mapping[str, Mapping[str, Any]], first: tuple[int, int]
) -> Table:
    """Return a table of matrices by model and stack.

    Args:
        name: name of the table.
        cells: the meaning of row, column and value.
        found: label to stack to matrix.
        first: numbers of the first row and the first column.
    """
    rows = tuple(
        (label, stack, i, j, value)
        for label, stacks in found.items()
        for stack, matrix in stacks.items()
        for i, line in enumerate(matrix.tolist(), start=first[0])
        for j, value in enumerate(line, start=first[1])
    )
    return Table(name, ("model", "stack", *cells), rows)


def _csv_cell(cell: Cell) -> str | int:
    if cell is None:
        return ""
    return f"{cell:.8g}" if isinstance(cell, float) else cell


def write(table: Table, directory: Path, about: Mapping[str, Any]) -> list[Path]:
    """Write both files atomically; ``about`` goes into the JSON before the rows."""
    files = [directory / f"{table.name}.csv", directory / f"{table.name}.json"]
    write_whole(files[0], table.as_csv())
    write_whole(files[1], strict_json({**about, **table.as_dict()}))
    return files


def shown(value: float | None) -> str:
    """Format a number for a terminal: three significant digits, a dash if there is none."""
    if value is None:
        return "-"
    return f"{value:.3f}" if 0.0995 <= abs(value) < 10 or value == 0 else f"{value:.3g}"


def cells(header: Sequence[str], rows: Iterable[Sequence[str | float | int | None]]) -> list[list[str]]:
    """Return a table for a terminal; whole numbers and text are not changed."""
    return [list(header), *([_shown_cell(cell) for cell in row] for row in rows)]


def _shown_cell(cell: Cell) -> str:
    return shown(cell) if cell is None or isinstance(cell, float) else str(cell)
