"""Take the sentences out of the SGML files of a WMT test set.

One ``<seg>`` a line makes one line of text, in the order of the file, without white space around it and otherwise as
published. ``sacrebleu --echo`` also makes one space of any white space inside, which its scores do not see. Entities
stay as they are: WMT has used none since 2009. The files are no valid XML and are not parsed as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.text.command import parser_of
from fairseq_plugins.text.lines import read_lines, write_lines

_SEGMENT = re.compile(r'<seg\b[^>]*?\bid="?([^">\s]*)"?[^>]*>(.*)</seg>', re.IGNORECASE)
_OPENS = re.compile(r"<seg\b", re.IGNORECASE)


@dataclass(frozen=True)
class Segment:
    """One sentence: its number in its document, as the file has it, and its text."""

    number: str
    text: str


def segments(path: Path) -> Iterator[Segment]:
    """The segments of an SGML file, in the order of the file.

    Raises:
        UserError: the file cannot be read, or a segment is not on one line of its own.
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
        UserError: as for :func:`segments`; the file holds no segment; or the two files are not of one test set.
    """
    own = list(segments(path))
    if not own:
        raise UserError(f"{path}: holds no <seg>")
    if like is not None:
        _require_same(path, own, like, list(segments(like)))
    return [segment.text for segment in own]


def _require_same(path: Path, own: Sequence[Segment], like: Path, other: Sequence[Segment]) -> None:
    if len(own) != len(other):
        raise UserError(f"{path}: holds {len(own):,} segments, {like} {len(other):,}")
    for place, (mine, theirs) in enumerate(zip(own, other, strict=True), start=1):
        if mine.number != theirs.number:
            raise UserError(f"{path}: segment {place:,} has the number {mine.number}, in {like} {theirs.number}")


def main(argv: Sequence[str]) -> int:
    """The step ``sgm``."""
    flags = parser_of("sgm", __doc__)
    flags.add_argument("--like", type=Path, metavar="FILE", help="the other side, which must hold the same segments")
    flags.add_argument("input", type=Path, metavar="INPUT")
    flags.add_argument("output", type=Path, metavar="OUTPUT")
    arguments = flags.read(argv)
    write_lines(arguments.output, text_of(arguments.input, arguments.like))
    return 0
