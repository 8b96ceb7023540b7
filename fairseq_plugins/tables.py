"""Tables for a terminal, in Markdown and as CSV, which read no cell as their own commands; numbers as cells."""

import csv
import io
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from tabulate import tabulate

from fairseq_plugins.errors import visible

ABSENT = "-"
"""A cell shows this where there is no number."""

_FORMULA = re.compile(r"[=@\t]|[+-](?!(\d+\.?\d*(e[+-]?\d+)?|inf|nan)$)")
Cells = Sequence[Sequence[str]]
"""Rows of one length; the first is the header."""


def number(value: float | None, form: str) -> str:
    """Return a cell: ``value`` in a format of Python's, or the sign that there is none."""
    return ABSENT if value is None else format(value, form)


def tabulated(cells: Cells, form: str = "simple", left: Collection[int] = (0,)) -> str:
    """Return the table for a terminal, in tabulate's ``form``; all columns but ``left`` go to the right."""
    header, *rows = [[visible(cell) for cell in row] for row in cells]
    align = ["left" if column in left else "right" for column in range(len(header))]
    text = tabulate(rows, headers=header, tablefmt=form, disable_numparse=True, colalign=align if rows else None)
    return "\n".join(line.rstrip() for line in text.split("\n"))


def markdown(text: str, escape: str = "\\|*<[") -> str:
    """Return ``text`` in one line of Markdown, where it means the characters of ``escape`` literally."""
    return visible(text).translate({10: " ", **{ord(mark): f"\\{mark}" for mark in escape}})


def csv_table(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows of numbers and text as CSV; text that a spreadsheet would calculate gets an apostrophe before it."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for row in rows:
        cells = ("" if cell is None else visible(str(cell)) for cell in row)
        writer.writerow([f"'{cell}" if _FORMULA.match(cell) else cell for cell in cells])
    return stream.getvalue()


def markdown_table(cells: Cells, *, numbers: bool = True, escape: str = "\\|*<[") -> str:
    """Return the table in Markdown.

    Args:
        cells: text, which may hold Markdown.
        numbers: whether all columns but the first hold numbers and go to the right.
        escape: characters of Markdown that the cells mean literally.
    """
    header, *rows = [[markdown(cell, escape) for cell in row] for row in cells]
    rule = ["---", *("---:" if numbers else "---" for _ in header[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])
