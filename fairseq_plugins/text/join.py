"""Join subwords into words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from fairseq_plugins.lines import read_lines, write_lines

_END_OF_A_PART = re.compile("@@( |$)")


def joined(line: str, kind: Literal["bpe", "sentencepiece"]) -> str:
    """The words of a line of subwords."""
    if kind == "bpe":
        return _END_OF_A_PART.sub("", line)
    return line.replace(" ", "").replace("▁", " ").removeprefix(" ")


def join_subwords(source: Path, output: Path, *, kind: Literal["bpe", "sentencepiece"]) -> None:
    """Join subwords into words."""
    write_lines(output, (joined(line, kind) for line in read_lines(source)))
