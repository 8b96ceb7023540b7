"""Numbers on disk: one table a file, as CSV to be read again and as JSON that says what was measured."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.files import write_whole
from fairseq_plugins.pipeline.tables import strict_json

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """Rows in long form: one measured thing each, the model's name first.

    Attributes:
        name: of its files, without ending.
        columns: what the cells of a row mean.
        rows: the cells; None where there is no number.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def as_csv(self) -> str:
        """With a header; an absent number is an empty cell."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_csv_cell(cell) for cell in row] for row in self.rows)
        return text.getvalue()

    def as_dict(self) -> dict[str, Any]:
        """Columns and rows, for JSON."""
        return {"columns": list(self.columns), "rows": [list(row) for row in self.rows]}


def of_records(name: str, found: Mapping[str, Iterable[Any]]) -> Table:
    """A table of named tuples of one class, by the label of their model."""
    rows = [(label, record) for label, records in found.items() for record in records]
    columns: tuple[str, ...] = ("model", *(rows[0][1]._fields if rows else ()))
    return Table(name, columns, tuple((label, *record) for label, record in rows))


def of_matrices(
    name: str, cells: tuple[str, str, str], found: Mapping[str, Mapping[str, Any]], first: tuple[int, int]
) -> Table:
    """A table of matrices by model and stack.

    Args:
        name: of the table.
        cells: what row, column and value mean.
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
    """Write both files, whole; ``about`` goes into the JSON before the rows."""
    files = [directory / f"{table.name}.csv", directory / f"{table.name}.json"]
    write_whole(files[0], table.as_csv())
    write_whole(files[1], strict_json({**about, **table.as_dict()}))
    return files


def shown(value: float | None) -> str:
    """A number for a terminal: three significant digits, a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:.3f}" if 0.0995 <= abs(value) < 10 or value == 0 else f"{value:.3g}"


def cells(header: Sequence[str], rows: Iterable[Sequence[str | float | int | None]]) -> list[list[str]]:
    """A table for a terminal; whole numbers and text stay as they are."""
    return [list(header), *([_shown_cell(cell) for cell in row] for row in rows)]


def _shown_cell(cell: Cell) -> str:
    return shown(cell) if cell is None or isinstance(cell, float) else str(cell)
