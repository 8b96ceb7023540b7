"""Definition of an analysis, and its result: tables for files, figures, and a small table for the terminal."""

from __future__ import annotations

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
from fairseq_plugins.tools.plots import Figure

STACKS = tuple(stack.value for stack in Stack)
BY_SUB_LAYER = "sub-layer, from the bottom"
BY_LAYER = "layer, from the bottom"
"""Labels of axes, which count from 1 as the papers do."""


@dataclass(frozen=True)
class Table:
    """Rows in long form: one measurement each, the model's name first; None if there is no number.

    Names of tables and figures end the names of their files, which begin with that of the analysis.
    """

    name: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]

    def write(self, directory: Path) -> Path:
        """Write ``NAME.csv`` with a header."""
        rows = ([f"{cell:.8g}" if isinstance(cell, float) else cell for cell in row] for row in self.rows)
        path = directory / f"{self.name}.csv"
        write_whole(path, csv_table([self.columns, *rows]))
        return path


def of_records(name: str, by_label: Mapping[str, Iterable[Any]]) -> Table:
    """Return a table of named tuples of one class, by the label of their model."""
    rows = [(label, record) for label, records in by_label.items() for record in records]
    columns: tuple[str, ...] = ("model", *(rows[0][1]._fields if rows else ()))
    return Table(name, columns, [(label, *record) for label, record in rows])


def of_matrices(
    name: str, cells: tuple[str, str, str], by_label: Mapping[str, Mapping[str, Tensor]], first: tuple[int, int]
) -> Table:
    """Return a table of matrices by model and stack.

    Args:
        name: name of the table.
        cells: the meaning of row, column and value.
        by_label: label to stack to matrix.
        first: numbers of the first row and the first column.
    """
    rows = [
        (label, stack, i, j, value)
        for label, stacks in by_label.items()
        for stack, matrix in stacks.items()
        for i, line in enumerate(matrix.tolist(), start=first[0])
        for j, value in enumerate(line, start=first[1])
    ]
    return Table(name, ("model", "stack", *cells), rows)


def shown(cell: Any) -> str:
    """Format a cell for a terminal: three significant digits, a dash if there is no number."""
    if cell is None:
        return "-"
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:.3f}" if 0.0995 <= abs(cell) < 10 or cell == 0 else f"{cell:.3g}"


@dataclass(frozen=True)
class AnalysisResult:
    """Result of an analysis: tables for files, figures, one small table for the terminal, and lines below it."""

    tables: Sequence[Table]
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
    """One analysis; each has its own file, and a name in :mod:`~fairseq_plugins.tools.observe.diagnostics.command`.

    Attributes:
        name: name for the user.
        summary: one line of the help.
        paper: the source of its figure or table.
        run: measures models; besides them and the settings it takes each option by name.
        sentences: default size of a batch.
        length: default length of a sentence in tokens.
        options: its own flags: by the name of an argument of ``run`` what argparse needs.
    """

    name: str
    summary: str
    paper: str
    run: Callable[..., AnalysisResult]
    sentences: int = 16
    length: int = 25
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def ratio(value: float | None, of: float | None) -> float | None:
    """Return ``value`` / ``of``; None if one is missing or ``of`` is zero."""
    return value / of if value is not None and of else None


def progress(label: str) -> None:
    """Say what is measured, beside the result."""
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
