"""Normalise punctuation and drop control characters: Moses' normalize-punctuation and remove-non-printing-char."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from sacremoses import MosesPunctNormalizer

from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.workers import map_lines


def without_control_characters(line: str) -> str:
    """Replace every character of Unicode's category "other" by a space, like remove-non-printing-char.perl."""
    if line.isprintable():
        return line
    return "".join(" " if unicodedata.category(character).startswith("C") else character for character in line)


@cache
def punctuation_normaliser(language: str) -> Callable[[str], str]:
    """Normalise punctuation like Moses' Perl; the order of quotation marks and commas is the language's."""
    normalise = MosesPunctNormalizer(lang=language, perl_parity=True).normalize
    # Perl's lines have a line end, which its rule for a full stop before a closing quotation mark needs.
    return lambda line: str(normalise(line + "\n"))


def normaliser(language: str) -> Callable[[str], str]:
    """Both steps, in the order of fairseq's preparation of WMT."""
    normalise = punctuation_normaliser(language)
    return lambda line: without_control_characters(normalise(line))


def normalise(inputs: Sequence[Path], output: Path, *, language: str, workers: int = 1) -> None:
    """Normalise punctuation; drop control characters."""
    write_lines(output, map_lines(lambda: normaliser(language), read_lines(*inputs), workers))


def straighten(source: Path, output: Path) -> None:
    """Replace ’ by ', as fairseq's preparations do with test sets."""
    write_lines(output, (line.replace("’", "'") for line in read_lines(source)))
