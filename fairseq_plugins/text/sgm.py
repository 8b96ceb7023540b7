"""Extract the sentences of a WMT test set from SGML.

Each ``<seg>`` becomes one line of text, in the order of the file, stripped and otherwise as published.
``sacrebleu --echo`` also replaces inner white space by one space, which does not change its scores. Entities stay: WMT
has used none since 2009. The files are not valid XML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.text.command import parser_of

_SEGMENT = re.compile(r'<seg\b[^>]*?\bid="?([^">\s]*)"?[^>]*>(.*)</seg>', re.IGNORECASE)
_OPENS = re.compile(r"<seg\b", re.IGNORECASE)


@dataclass(frozen=True)
class Segment:
    """One sentence: its number in its document, as in the file, and its text."""

    number: str
    text: str


def segments(path: Path) -> Iterator[Segment]:
    """The segments of an SGML file, in the order of the file.

    Raises:
        UserError: the file cannot be read, or a segment is not on its own line.
    """
    for number, line in enumerate(read_lines(path), start=1):
        found = _SEGMENT.search(line)
        if len(_OPENS.findall(line)) != (found is not None):
            raise UserError(f"{path}: line {number}: not one whole <seg>...</seg>")
        if found is not None:
            yield Segment(found.group(1), found.group(2).strip())


def text_of(path: Path, like: Path | None = None) -> list[str]:
    """The lines of a test set.

    Args:
        path: the source or the reference.
        like: the other side, which must have the same numbers in the same order.

    Raises:
        UserError: as for :func:`segments`; the file contains no segment; or the files are of different test sets.
    """
    own = list(segments(path))
    if not own:
        raise UserError(f"{path}: contains no <seg>")
    if like is not None:
        _require_same(path, own, like, list(segments(like)))
    return [segment.text for segment in own]


def _require_same(path: Path, own: Sequence[Segment], like: Path, other: Sequence[Segment]) -> None:
    if len(own) != len(other):
        raise UserError(f"{path}: has {len(own):,} segments, but {like} has {len(other):,}")
    for place, (mine, theirs) in enumerate(zip(own, other, strict=True), start=1):
        if mine.number != theirs.number:
            raise UserError(f"{path}: segment {place:,} has the number {mine.number}, but {theirs.number} in {like}")


def main(argv: Sequence[str]) -> int:
    """The step ``sgm``."""
    flags = parser_of("sgm", __doc__)
    flags.add_argument("--like", type=Path, metavar="FILE", help="the other side, which must have the same segments")
    flags.add_argument("input", type=Path, metavar="INPUT")
    flags.add_argument("output", type=Path, metavar="OUTPUT")
    arguments = flags.read(argv)
    write_lines(arguments.output, text_of(arguments.input, arguments.like))
    return 0
