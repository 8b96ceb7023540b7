"""Join subwords into words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.text.command import add_files, parser_of

_END_OF_A_PART = re.compile("@@( |$)")
KINDS = ("bpe", "sentencepiece")


def joined(line: str, kind: str) -> str:
    """The words of a line of subwords of one of :data:`KINDS`."""
    if kind == "bpe":
        return _END_OF_A_PART.sub("", line)
    return line.replace(" ", "").replace("▁", " ").removeprefix(" ")


def main(argv: Sequence[str]) -> int:
    """``join-subwords --kind bpe|sentencepiece INPUT ... OUTPUT``."""
    flags = parser_of("join-subwords", __doc__)
    flags.add_argument("--kind", choices=KINDS, required=True)
    add_files(flags)
    args = flags.read(argv)
    write_lines(args.output, (joined(line, args.kind) for line in read_lines(*args.inputs)))
    return 0
