"""Count lines, tokens and types of tokenised text; with --vocabulary, write the types with their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.text.command import parser_of


def counted(*paths: Path) -> tuple[int, Counter[str]]:
    """Number of lines, and the count of each token."""
    types: Counter[str] = Counter()
    lines = 0
    for line in read_lines(*paths):
        types.update(line.split())
        lines += 1
    return lines, types


def main(argv: Sequence[str]) -> int:
    """``count FILE ... [--vocabulary OUTPUT]``."""
    flags = parser_of("count", __doc__)
    flags.add_argument("files", type=Path, nargs="+", metavar="FILE")
    flags.add_argument("--vocabulary", type=Path, metavar="OUTPUT", help="write types and counts of all files together")
    args = flags.read(argv)
    together: Counter[str] = Counter()
    for path in args.files:
        lines, types = counted(path)
        together.update(types)
        print(f"{path}: {lines:,} lines, {types.total():,} tokens, {len(types):,} types")
    if args.vocabulary is not None:
        ranked = sorted(together.items(), key=lambda item: (-item[1], item[0]))
        write_lines(args.vocabulary, (f"{token} {count}" for token, count in ranked))
    return 0
