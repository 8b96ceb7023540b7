"""Normalise punctuation and drop control characters: Moses' normalize-punctuation and remove-non-printing-char."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from sacremoses import MosesPunctNormalizer

from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.text.words import straightened
from fairseq_plugins.workers import Transform, map_lines


def without_control_characters(line: str) -> str:
    """Replace every character of Unicode's category "other" by a space, like remove-non-printing-char.perl."""
    if line.isprintable():
        return line
    return "".join(" " if unicodedata.category(character).startswith("C") else character for character in line)


@cache
def normaliser(language: str) -> Transform:
    """Both steps, in the order of fairseq's preparation of WMT.

    The order of quotation marks and commas is the language's.
    """
    normalise = MosesPunctNormalizer(lang=language, perl_parity=True).normalize
    # Perl's lines have a line end, which its rule for a full stop before a closing quotation mark needs.
    return lambda line: without_control_characters(str(normalise(line + "\n")))


def normalise(inputs: Sequence[Path], output: Path, *, language: str, workers: int = 1) -> None:
    """Normalise punctuation; drop control characters."""
    write_lines(output, map_lines(lambda: normaliser(language), read_lines(*inputs), workers))


def straighten(source: Path, output: Path) -> None:
    """Replace ’ by ', as fairseq's preparations do with test sets."""
    write_lines(output, map(straightened, read_lines(source)))
