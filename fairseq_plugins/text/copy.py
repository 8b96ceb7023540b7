"""Copy a file byte for byte, or unpack it if its name ends in .gz: references stay as published."""

from __future__ import annotations

from collections.abc import Sequence

from fairseq_plugins.lines import raw_lines, whole_files
from fairseq_plugins.text.command import add_files, parser_of


def main(argv: Sequence[str]) -> int:
    """``copy INPUT OUTPUT``."""
    flags = parser_of("copy", __doc__)
    add_files(flags, many=False)
    args = flags.read(argv)
    with whole_files(args.output) as [writer]:
        for line in raw_lines(args.inputs[0]):
            writer.write(line)
    return 0
