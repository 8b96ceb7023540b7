"""Change the words of a line: lower case like Moses' lowercase.perl, and subwords joined."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from fairseq_plugins.lines import read_lines, write_lines

_END_OF_A_PART = re.compile("@@( |$)")


def lower_case(line: str) -> str:
    """Lower-case a line. A sigma at the end of a word becomes σ as in Perl; Python would write ς."""
    return line.replace("Σ", "σ").lower()


def straightened(line: str) -> str:
    """Replace ’ by ', as fairseq's preparations do with test sets."""
    return line.replace("’", "'")


def joined(line: str, kind: Literal["bpe", "sentencepiece"]) -> str:
    """The words of a line of subwords."""
    if kind == "bpe":
        return _END_OF_A_PART.sub("", line)
    return line.replace(" ", "").replace("▁", " ").removeprefix(" ")


def join_subwords(source: Path, output: Path, *, kind: Literal["bpe", "sentencepiece"]) -> None:
    """Join subwords into words."""
    write_lines(output, (joined(line, kind) for line in read_lines(source)))
