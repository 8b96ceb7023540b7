"""Extract the sentences of a WMT test set from SGML, which is not valid XML.

Each ``<seg>`` becomes one line of text, in the order of the file, stripped and otherwise as published.
``sacrebleu --echo`` also replaces inner white space by one space, which does not change its scores but the bytes.
Entities stay: WMT has used none since 2009.
"""

from __future__ import annotations

import re
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines, write_lines

_SEGMENT = re.compile(r'<seg\b[^>]*?\bid="?([^">\s]*)"?[^>]*>(.*)</seg>', re.IGNORECASE)
_OPENS = re.compile(r"<seg\b", re.IGNORECASE)


def segments(path: Path) -> list[tuple[str, str]]:
    """Number in its document and text of each segment, in the order of the file.

    Raises:
        UserError: the file cannot be read, has no segment, or one that is not on its own line.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        segment = _SEGMENT.search(line)
        if len(_OPENS.findall(line)) != (segment is not None):
            raise UserError(f"{path}: line {number}: not one whole <seg>...</seg>")
        if segment is not None:
            pairs.append((segment[1], segment[2].strip()))
    if not pairs:
        raise UserError(f"{path}: contains no <seg>")
    return pairs


def extract(source: Path, output: Path, *, like: Path | None = None) -> None:
    """Extract the sentences of a WMT test set.

    Options:
        like: the other side, which must have the same segments

    Raises:
        UserError: as for :func:`segments`; the two sides are of different test sets.
    """
    own = segments(source)
    other = own if like is None else segments(like)
    if len(own) != len(other):
        raise UserError(f"{source}: has {len(own):,} segments, but {like} has {len(other):,}")
    for place, ((mine, _), (theirs, _)) in enumerate(zip(own, other, strict=True), start=1):
        if mine != theirs:
            raise UserError(f"{source}: segment {place:,} has the number {mine}, but {theirs} in {like}")
    write_lines(output, (text for _, text in own))
