"""Tables for a terminal and in Markdown; numbers as cells; strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from typing import Any

from tabulate import tabulate

ABSENT = "-"
"""A cell shows this where there is no number."""

Cells = Sequence[Sequence[str]]
"""Rows of one length; the first is the header."""


def number(value: float | None, form: str) -> str:
    """Return a cell: ``value`` in a format of Python's, or the sign that there is none."""
    return ABSENT if value is None else format(value, form)


def tabulated(cells: Cells, form: str = "simple", left: Collection[int] = (0,)) -> str:
    """Return the table for a terminal, in tabulate's ``form``; all columns but ``left`` go to the right."""
    header, *rows = cells
    align = ["left" if column in left else "right" for column in range(len(header))]
    text = tabulate(rows, headers=header, tablefmt=form, disable_numparse=True, colalign=align if rows else None)
    return "\n".join(line.rstrip() for line in text.split("\n"))


def without_empty_columns(cells: Cells) -> list[list[str]]:
    """Return the table without the columns that have no entry in any row."""
    columns = [column for column in zip(*cells, strict=True) if set(column[1:]) != {ABSENT}]
    return [list(row) for row in zip(*columns, strict=True)]


def markdown_table(cells: Cells, *, numbers: bool = True, escape: str = "|*") -> str:
    """Return the table in Markdown.

    Args:
        cells: text, which may hold Markdown.
        numbers: whether all columns but the first hold numbers and go to the right.
        escape: characters of Markdown that the cells mean literally.
    """
    marks = str.maketrans({mark: f"\\{mark}" for mark in escape})
    header, *rows = [[cell.translate(marks) for cell in row] for row in cells]
    rule = ["---", *("---:" if numbers else "---" for _ in header[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def strict_json(content: Any) -> str:
    """Return ``content`` as indented JSON that every reader takes: a number that is not finite becomes null."""
    return json.dumps(_without_nan(content), indent=1, allow_nan=False) + "\n"


def _without_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
