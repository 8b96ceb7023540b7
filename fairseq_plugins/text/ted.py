"""Extract the sentences of a TED release (WIT3), as fairseq's preparation of IWSLT'14 does.

The training files have one sentence per line between lines of metadata; titles and descriptions count as sentences. The
XML files of development and test sets have a sentence in each ``<seg>``. Entities stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.text.command import add_files, parser_of

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


def main(argv: Sequence[str]) -> int:
    """``ted --tags|--xml INPUT ... OUTPUT``."""
    flags = parser_of("ted", __doc__)
    kind = flags.add_mutually_exclusive_group(required=True)
    kind.add_argument("--tags", action="store_true", help="the input is a train.tags file")
    kind.add_argument("--xml", action="store_true", help="the input is XML with <seg> elements")
    flags.add_argument(
        "--straight-apostrophes", action="store_true", help="with --xml: replace ’ by ', as fairseq does"
    )
    add_files(flags)
    args = flags.read(argv)
    if args.tags and args.straight_apostrophes:
        raise UserError("--straight-apostrophes needs --xml")
    lines = read_lines(*args.inputs)
    sentences = training_sentences(lines) if args.tags else segments(lines, args.straight_apostrophes)
    write_lines(args.output, _at_least_one(sentences, args.inputs[0]))
    return 0


def _at_least_one(sentences: Iterable[str], path: Path) -> Iterator[str]:
    sentence = None
    for sentence in sentences:
        yield sentence
    if sentence is None:
        raise UserError(f"{path}: contains no sentence")
