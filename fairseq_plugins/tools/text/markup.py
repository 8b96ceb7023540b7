"""Extract the sentences of a TED release (WIT3), as fairseq's preparation of IWSLT'14 does, and of WMT's SGML.

Each ``<seg>`` becomes one line, in the order of the file, stripped and otherwise as published; entities stay (WMT has
used none since 2009). ``sacrebleu --echo`` also replaces inner white space by one space, which changes the bytes.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.tools.text.words import straightened

METADATA = ("<url>", "<talkid>", "<keywords>")
"""Lines of a ``train.tags.*`` file that contain one of them are not sentences; titles and descriptions are."""

_KEPT_CONTENT = re.compile("</?(?:title|description)>")
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*)</seg>", re.IGNORECASE)
_OPENS = re.compile(r"<seg\b", re.IGNORECASE)


def segments(path: Path) -> Iterator[str]:
    """The content of each ``<seg>``; a UserError if there is none, or one that is not on its own line."""
    number_of_segments = 0
    for number, line in enumerate(read_lines(path), start=1):
        segment = _SEGMENT.search(line)
        if len(_OPENS.findall(line)) != (segment is not None):
            raise UserError(f"{path}: line {number}: not one whole <seg>...</seg>")
        if segment is not None:
            number_of_segments += 1
            yield segment[1].strip()
    if not number_of_segments:
        raise UserError(f"{path}: contains no <seg>")


def extract_ted(
    inputs: Sequence[Path], output: Path, *, kind: Literal["tags", "xml"], straight_apostrophes: bool = False
) -> None:
    """Extract the sentences of a TED release.

    Options:
        kind: train.tags files, or XML with <seg> elements
        straight_apostrophes: with xml: replace ’ by ', as fairseq does
    """
    if kind == "xml":
        sentences = (sentence for path in inputs for sentence in segments(path))
    else:
        lines = (line for line in read_lines(*inputs) if not any(tag in line for tag in METADATA))
        sentences = (_KEPT_CONTENT.sub("", line) for line in lines)
    if not write_lines(output, map(straightened, sentences) if straight_apostrophes else sentences):
        raise UserError(f"{inputs[0]}: contains no sentence")
