"""A line of a dictionary that fairseq cannot read ends in a stack trace that names neither file nor line.

https://github.com/facebookresearch/fairseq/issues/3417
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq.data.dictionary import Dictionary

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines
from fairseq_plugins.patches.wrapping import wrap

OVERWRITE = " #fairseq:overwrite"
MARK = "\ufeff"
SHOWN = 80
"""Characters of a line in a message."""


def first_fault(path: Path, known: set[str]) -> str:
    """Return the problem of the first line that cannot be read; empty if there is none.

    Args:
        path: the file.
        known: words that are in the dictionary before the file is read.

    Raises:
        UserError: the file is not UTF-8, or empty.
    """
    seen = dict.fromkeys(known, 0)
    for number, text in enumerate(read_lines(path), start=1):
        line = text.rstrip()
        word, blank, count = line.removesuffix(OVERWRITE).rpartition(" ")
        try:
            int(count)
        except ValueError:
            blank = ""
        if "\r" in line:
            return f"{path}: line {number}: carriage return inside the line, where fairseq splits it; remove it"
        if not blank:
            tab = ", separated by a space, not a tab" if "\t" in line else ""
            # A text in place of a dictionary may have lines of any length.
            shown = line if len(line) <= SHOWN else line[:SHOWN] + "..."
            return f"{path}: line {number}: '{shown}' is not a word and its count{tab}"
        if word in seen and not line.endswith(OVERWRITE):
            where = f"is in line {seen[word]} already" if seen[word] else "is one that fairseq adds itself"
            return f"{path}: line {number}: the word '{word}' {where}; remove it, or end the line in{OVERWRITE}"
        seen[word] = number
    return ""


def read_or_name_line(add_from_file: Callable[..., None], dictionary: Dictionary, file: Any) -> None:
    """``Dictionary.add_from_file`` that names the line it cannot read, or would misread.

    Raises:
        UserError: there is such a line, or a byte order mark before the first.
    """
    known = set(dictionary.indices)
    first = len(dictionary)
    try:
        add_from_file(dictionary, file)
    except OSError:
        raise
    except Exception as error:
        # fairseq calls this again with the open file, which has the same lines.
        fault = first_fault(Path(file), known) if isinstance(file, str) else ""
        if not fault:
            raise
        raise UserError(fault) from error
    # fairseq reads a mark as a part of the first word, which is then unknown in every text.
    if dictionary.symbols[first:] and dictionary[first].startswith(MARK) and dictionary[first] != MARK:
        raise UserError(f"{getattr(file, 'name', file)}: line 1: begins with a byte order mark; remove it")


def apply() -> None:
    """Wrap the method through which every task and command reads a dictionary."""
    wrap(Dictionary, "add_from_file", read_or_name_line)
