"""Lower-case text like Moses' lowercase.perl."""

from __future__ import annotations

from collections.abc import Sequence

from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.text.command import add_files, parser_of


def lower_case(line: str) -> str:
    """Lower-case a line. A sigma at the end of a word becomes σ as in Perl; Python would write ς."""
    return line.replace("Σ", "σ").lower()


def main(argv: Sequence[str]) -> int:
    """``lower-case INPUT ... OUTPUT``."""
    flags = parser_of("lower-case", __doc__)
    add_files(flags)
    args = flags.read(argv)
    write_lines(args.output, map(lower_case, read_lines(*args.inputs)))
    return 0
