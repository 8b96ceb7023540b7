"""A line of a dictionary that fairseq cannot read ends in a stack trace that names neither file nor line.

https://github.com/facebookresearch/fairseq/issues/3417
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq.data.dictionary import Dictionary

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.wrapping import wrap
from fairseq_plugins.text.lines import read_lines

OVERWRITE = " #fairseq:overwrite"


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
        if not blank:
            tab = ", separated by a space, not a tab" if "\t" in line else ""
            return f"{path}: line {number}: '{line}' is not a word and its count{tab}"
        if word in seen and not line.endswith(OVERWRITE):
            where = f"is in line {seen[word]} already" if seen[word] else "is one that fairseq adds itself"
            return f"{path}: line {number}: the word '{word}' {where}; remove it, or end the line in{OVERWRITE}"
        seen[word] = number
    return ""


def read_or_name_line(add_from_file: Callable[..., None], dictionary: Dictionary, file: Any) -> None:
    """``Dictionary.add_from_file`` that names the line it cannot read.

    Raises:
        UserError: there is such a line.
    """
    known = set(dictionary.indices)
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


def apply() -> None:
    """Wrap the method through which every task and command reads a dictionary."""
    wrap(Dictionary, "add_from_file", read_or_name_line)
