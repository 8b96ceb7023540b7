"""Check parallel files: UTF-8, not empty, equally many lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import in_step
from fairseq_plugins.text.command import parser_of


def check(paths: Sequence[Path]) -> tuple[int, int]:
    """Number of lines of parallel files, and of lines that are blank in at least one file.

    Raises:
        UserError: as :func:`~fairseq_plugins.lines.in_step`, or if a file has only blank lines.
    """
    count = blank = 0
    some_text = [False] * len(paths)
    for lines in in_step(paths):
        present = [bool(line) and not line.isspace() for line in lines]
        count += 1
        blank += not all(present)
        some_text = [seen or now for seen, now in zip(some_text, present, strict=True)]
    if problems := [f"{path}: all lines are blank" for path, seen in zip(paths, some_text, strict=True) if not seen]:
        raise UserError(problems)
    return count, blank


def main(argv: Sequence[str]) -> int:
    """``check FILE ...``: print how many lines there are."""
    flags = parser_of("check", __doc__)
    flags.add_argument("files", type=Path, nargs="+", metavar="FILE")
    args = flags.read(argv)
    count, blank = check(args.files)
    print(f"{' '.join(map(str, args.files))}: {count:,} lines each" + (f", {blank:,} blank" if blank else ""))
    return 0
