"""Tables and numbers of a report: for a terminal, in Markdown, as strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

ABSENT = "-"
"""What a cell shows where there is no number."""

Cells = Sequence[Sequence[str]]
"""Rows of one length; the first is the header."""


def number(value: float | None, form: str) -> str:
    """A cell: ``value`` in a format of Python's, or the sign that there is none."""
    return ABSENT if value is None else format(value, form)


def text_table(cells: Cells) -> str:
    """The table for a terminal: first column left, all others right."""
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        line = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(line).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def without_empty_columns(cells: Cells) -> list[list[str]]:
    """The table without the columns that have no entry in any row."""
    columns = [column for column in zip(*cells, strict=True) if set(column[1:]) != {ABSENT}]
    return [list(row) for row in zip(*columns, strict=True)]


def markdown_table(cells: Cells) -> str:
    """The table in Markdown: first column left, all others right."""
    escaped = [[cell.replace("|", "\\|").replace("*", "\\*") for cell in row] for row in cells]
    rule = ["---", *("---:" for _ in escaped[0][1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [escaped[0], rule, *escaped[1:]])


def strict_json(content: Any) -> str:
    """``content`` as indented JSON that every reader takes: what is not finite becomes null."""
    return json.dumps(_without_nan(content), indent=1, allow_nan=False) + "\n"


def _without_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
