"""Split tab-separated text into columns: parallel text in one file, as in some WMT data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines, whole_files
from fairseq_plugins.text.command import parser_of


def take_apart(path: Path, columns: Sequence[Path]) -> None:
    """Write column k of each line of ``path`` to file k of ``columns``.

    Raises:
        UserError: a line has another number of columns.
    """
    with whole_files(*columns) as writers:
        for number, line in enumerate(read_lines(path), start=1):
            fields = line.split("\t")
            if len(fields) != len(writers):
                raise UserError(f"{path}: line {number:,} has {len(fields)} columns, not {len(writers)}")
            for writer, field in zip(writers, fields, strict=True):
                writer.write_line(field)


def main(argv: Sequence[str]) -> int:
    """``columns INPUT OUTPUT OUTPUT ...``."""
    flags = parser_of("columns", __doc__)
    flags.add_argument("input", type=Path, metavar="INPUT", help="text, or text.gz")
    flags.add_argument("outputs", type=Path, nargs="+", metavar="OUTPUT", help="a file for each column")
    args = flags.read(argv)
    take_apart(args.input, args.outputs)
    return 0
