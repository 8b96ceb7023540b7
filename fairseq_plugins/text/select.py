"""Select lines of a file by number, or every n-th line, for example to keep a second file parallel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.options import at_least
from fairseq_plugins.text.command import add_files, parser_of


def every(paths: Sequence[Path], step: int) -> Iterator[str]:
    """Lines ``step``, 2 ``step``, ... (from 1) of all ``paths``."""
    return islice(read_lines(*paths), step - 1, None, step)


def selected(paths: Sequence[Path], numbers: Path) -> Iterator[str]:
    """The lines of all ``paths`` whose numbers (from 1, ascending) are in the file ``numbers``, one per line.

    Raises:
        UserError: a number is beyond the last line.
    """
    lines = enumerate(read_lines(*paths), start=1)
    for wanted in map(int, read_lines(numbers)):
        for number, line in lines:
            if number == wanted:
                yield line
                break
        else:
            raise UserError(f"{paths[-1]}: has no line {wanted:,}, which is in {numbers}")


def main(argv: Sequence[str]) -> int:
    """``select --lines NUMBERS|--every N INPUT ... OUTPUT``."""
    flags = parser_of("select", __doc__)
    which = flags.add_mutually_exclusive_group(required=True)
    which.add_argument("--lines", type=Path, metavar="NUMBERS", help="file of line numbers, ascending")
    which.add_argument("--every", type=at_least(1), metavar="N", help="every N-th line")
    add_files(flags)
    args = flags.read(argv)
    chosen = every(args.inputs, args.every) if args.every else selected(args.inputs, args.lines)
    write_lines(args.output, chosen)
    return 0
