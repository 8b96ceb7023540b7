"""Tables for a terminal and in Markdown; numbers as cells."""

from __future__ import annotations

from collections.abc import Collection, Sequence

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
