"""``fairseq-interactive`` begins a line at a carriage return, and ends in a stack trace at a byte that is not UTF-8.

So a text with a carriage return inside a sentence gets more translations than it has lines, and the following ones are
shifted. A byte order mark becomes a part of the first word. Not reported upstream so far.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext

from fairseq_cli import interactive

from fairseq_plugins.lines import decoded
from fairseq_plugins.workers import grouped


def read_to_line_feeds(_: Callable[..., Iterator[list[str]]], input: str, buffer_size: int) -> Iterator[list[str]]:
    """``buffered_read`` whose lines end at the line feed alone.

    Args:
        input: a file, or ``-`` for standard input.
        buffer_size: lines that are yielded together.

    Raises:
        UserError: a line is not UTF-8; what precedes it has been yielded.
    """
    standard = input == "-"
    with nullcontext(sys.stdin.buffer) if standard else open(input, "rb") as stream:
        lines = decoded(stream, "standard input" if standard else input)
        yield from grouped(map(str.strip, lines), buffer_size)


WRAPPED = ((interactive, "buffered_read", read_to_line_feeds),)
