"""Extract the sentences of a TED release (WIT3), as fairseq's preparation of IWSLT'14 does.

The training files have one sentence per line between lines of metadata; titles and descriptions count as sentences. The
XML files of development and test sets have a sentence in each ``<seg>``. Entities stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines, write_lines

METADATA = ("<url>", "<talkid>", "<keywords>")
"""Lines that contain one of them are not sentences."""

_KEPT_CONTENT = re.compile("</?(?:title|description)>")
_SEGMENT_START = re.compile(r'<seg id="[0-9]*">\s*', re.ASCII)
_SEGMENT_END = re.compile(r"\s*</seg>\s*", re.ASCII)


def training_sentences(lines: Iterable[str]) -> Iterator[str]:
    """The sentences of a ``train.tags.*`` file."""
    for line in lines:
        if not any(tag in line for tag in METADATA):
            yield _KEPT_CONTENT.sub("", line)


def segments(lines: Iterable[str], straight_apostrophes: bool = False) -> Iterator[str]:
    """The content of each ``<seg>``, one per line; ’ becomes ' on request."""
    for line in lines:
        if "<seg id" in line:
            sentence = _SEGMENT_END.sub("", _SEGMENT_START.sub("", line))
            yield sentence.replace("’", "'") if straight_apostrophes else sentence


def extract(
    inputs: Sequence[Path], output: Path, *, kind: Literal["tags", "xml"], straight_apostrophes: bool = False
) -> None:
    """Extract the sentences of a TED release.

    Options:
        kind: train.tags files, or XML with <seg> elements
        straight_apostrophes: with xml: replace ’ by ', as fairseq does
    """
    lines = read_lines(*inputs)
    sentences = training_sentences(lines) if kind == "tags" else segments(lines, straight_apostrophes)
    if not write_lines(output, sentences):
        raise UserError(f"{inputs[0]}: contains no sentence")
