"""Definition of an analysis, and its result: tables for files, figures, and a small table for the terminal."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.core.method import Stack
from fairseq_plugins.files import write_whole
from fairseq_plugins.tables import csv_table
from fairseq_plugins.tools.observe.diagnostics.batches import Batch
from fairseq_plugins.tools.observe.diagnostics.models import Subject
from fairseq_plugins.tools.plots import Figure, Line

STACKS = tuple(stack.value for stack in Stack)
BY_SUB_LAYER = "sub-layer, from the bottom"
BY_LAYER = "layer, from the bottom"
"""Labels of axes, which count from 1 as the papers do."""

Table = list[tuple[Any, ...]]
"""Names of the columns, then rows in long form: one measurement each, the model first; None if there is no number."""


@dataclass(frozen=True)
class AnalysisResult:
    """Tables and figures for files, a small table for the terminal, and lines below it.

    The key of a table and the name of a figure end the name of the file, which begins with that of the analysis.
    """

    tables: Mapping[str, Table]
    figures: Sequence[Figure]
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class AnalysisSettings:
    """Settings of every analysis: how to make the sentences for a model, and the seed of weights and dropout."""

    batch: Callable[[Subject], Batch]
    seed: int = 1


@dataclass(frozen=True)
class Analysis:
    """One analysis: its name, one line of help, and the paper that shows it.

    ``run`` takes the models, the settings, and each of ``options`` by name: flags, with their arguments for argparse.
    ``sentences`` and ``length`` in tokens are the default size of a batch.
    """

    name: str
    summary: str
    paper: str
    run: Callable[..., AnalysisResult]
    sentences: int = 16
    length: int = 25
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def of_records(by_label: Mapping[str, Iterable[Any]]) -> Table:
    """Return a table of named tuples of one class, by the label of their model."""
    rows = [(label, record) for label, records in by_label.items() for record in records]
    return [("model", *(rows[0][1]._fields if rows else ())), *((label, *record) for label, record in rows)]


def of_matrices(
    cells: tuple[str, str, str], by_label: Mapping[str, Mapping[str, Tensor]], first: tuple[int, int]
) -> Table:
    """Return a table of the matrices of every model and stack.

    ``cells`` names row, column and value; ``first`` has the numbers of the first row and the first column.
    """
    rows = [
        (label, stack, i, j, value)
        for label, stacks in by_label.items()
        for stack, matrix in stacks.items()
        for i, line in enumerate(matrix.tolist(), start=first[0])
        for j, value in enumerate(line, start=first[1])
    ]
    return [("model", "stack", *cells), *rows]


def write_table(path: Path, table: Table) -> None:
    """Write a table as CSV, with eight significant digits."""
    write_whole(path, csv_table([f"{cell:.8g}" if isinstance(cell, float) else cell for cell in row] for row in table))


def numbered(label: str, values: Iterable[float | None]) -> Line:
    """Return a line of values at 1, 2, ...; None has no point."""
    return Line(label, [(place, value) for place, value in enumerate(values, start=1) if value is not None])


def shown(cell: Any) -> str:
    """Format a cell for a terminal: three significant digits, a dash if there is no number."""
    if not isinstance(cell, float):
        return "-" if cell is None else str(cell)
    return f"{cell:.3f}" if 0.0995 <= abs(cell) < 10 or cell == 0 else f"{cell:.3g}"


def ratio(value: float | None, of: float | None) -> float | None:
    """Return ``value`` / ``of``; None if one is missing or ``of`` is zero."""
    return value / of if value is not None and of else None


def progress(label: str) -> None:
    """Print the name of a measurement to standard error."""
    print(f"measuring {label}", file=sys.stderr, flush=True)


def each(
    subjects: Sequence[Subject], settings: AnalysisSettings, measure: Callable[[Any, Batch], Any]
) -> dict[str, Any]:
    """Call ``measure`` on every model with its batch, by label; dropout draws the same numbers for each."""
    results = {}
    for subject in subjects:
        progress(subject.label)
        batch = settings.batch(subject)
        model = subject.ready(batch, settings.seed)
        torch.manual_seed(settings.seed)
        results[subject.label] = measure(model, batch)
        del model  # before the next one is built
    return results
