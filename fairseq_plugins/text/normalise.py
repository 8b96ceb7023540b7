"""Normalise punctuation and drop control characters: Moses' normalize-punctuation and remove-non-printing-char."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from functools import cache

from sacremoses import MosesPunctNormalizer

from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.text import moses
from fairseq_plugins.text.command import add_files, add_workers, parser_of
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


def main(argv: Sequence[str]) -> int:
    """``normalise --language L INPUT ... OUTPUT``."""
    flags = parser_of("normalise", __doc__)
    flags.add_argument("--language", required=True, metavar="L")
    add_workers(flags)
    add_files(flags)
    args = flags.read(argv)
    lines = read_lines(*args.inputs)
    if scripts := moses.scripts():
        normal = moses.through(moses.normalise_command(scripts, args.language), lines)
        write_lines(args.output, map(without_control_characters, normal))
    else:
        write_lines(args.output, map_lines(lambda: normaliser(args.language), lines, args.workers))
    return 0


def main_of_straighten(argv: Sequence[str]) -> int:
    """``straighten INPUT ... OUTPUT``."""
    flags = parser_of("straighten", "Replace ’ by ', as fairseq's preparations do with test sets.")
    add_files(flags)
    args = flags.read(argv)
    write_lines(args.output, (line.replace("’", "'") for line in read_lines(*args.inputs)))
    return 0
