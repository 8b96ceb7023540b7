"""The lines of given numbers: what became of a file's lines elsewhere is done to a second file."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, Sequence

from fairseq_plugins.corpora.command import add_files, parser_of
from fairseq_plugins.corpora.lines import read_lines, write_lines
from fairseq_plugins.errors import UserError


def selected(paths: Sequence[Path], numbers: Path) -> Iterator[str]:
    """The lines of all ``paths`` whose numbers (from 1, rising) stand in the file ``numbers``, one a line.

    Raises:
        UserError: a number beyond the last line.
    """
    lines = enumerate(read_lines(*paths), start=1)
    for wanted in map(int, read_lines(numbers)):
        for number, line in lines:
            if number == wanted:
                yield line
                break
        else:
            raise UserError(f"{paths[-1]}: there is no line {wanted:,}, which {numbers} asks for")


def main(argv: Sequence[str]) -> int:
    """``select --lines NUMBERS INPUT ... OUTPUT``."""
    flags = parser_of("select", __doc__)
    flags.add_argument("--lines", type=Path, required=True, metavar="NUMBERS", help="file of line numbers, rising")
    add_files(flags)
    args = flags.parse_args(argv)
    write_lines(args.output, selected(args.inputs, args.lines))
    return 0
