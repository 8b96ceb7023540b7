"""Move every n-th line of a file to another file, as fairseq splits a validation set off a training set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines, whole_files
from fairseq_plugins.options import at_least
from fairseq_plugins.text.command import parser_of


def split(path: Path, rest: Path, taken: Path, every: int) -> int:
    """Write lines ``every``, 2 ``every``, ... (from 1) to ``taken``, the others to ``rest``; return the number taken.

    Raises:
        UserError: one of the two would be empty.
    """
    with whole_files(rest, taken) as [stays, goes]:
        number = 0
        for number, line in enumerate(read_lines(path), start=1):
            (stays if number % every else goes).write_line(line)
        if number < every or every < 2:
            raise UserError(f"{path}: {number:,} lines cannot be split at every {every}th: one part would be empty")
    return number // every


def main(argv: Sequence[str]) -> int:
    """``split --every N INPUT REST TAKEN``."""
    flags = parser_of("split", __doc__)
    flags.add_argument("--every", type=at_least(1), required=True, metavar="N")
    for name in ("input", "rest", "taken"):
        flags.add_argument(name, type=Path, metavar=name.upper())
    args = flags.read(argv)
    split(args.input, args.rest, args.taken, args.every)
    return 0
