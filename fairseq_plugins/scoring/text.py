"""Read the text to score: sentence k of a translation against sentence k of a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines

LOST_BY_BATCHES = 7
"""Maximum number of sentences that fairseq's batches of a multiple of 8 leave out of one decoding."""


def read_sentences(path: Path) -> list[str]:
    """Read the sentences of a UTF-8 file, which may be compressed (``.gz``); empty lines are empty sentences.

    Raises:
        UserError: no such file, not readable, without a line, or not UTF-8 (with the number of the first such line).
    """
    return list(read_lines(path))


def require_equal_counts(texts: Mapping[str, Sequence[str]]) -> int:
    """Return the common number of sentences of all ``texts`` (by display name).

    Raises:
        UserError: they differ; the message names every text that differs from the last one, with both counts.
    """
    *others, last = texts
    expected = len(texts[last])
    problems = [
        f"{name} has {_lines(len(texts[name]))}, {last} has {_lines(expected)}: sentence k must be the translation of "
        f"sentence k{_lost(len(texts[name]), expected)}"
        for name in others
        if len(texts[name]) != expected
    ]
    if problems:
        raise UserError(problems)
    return expected


def _lines(count: int) -> str:
    return f"{count} line{'' if count == 1 else 's'}"


def _lost(found: int, expected: int) -> str:
    missing = expected - found
    return f" ({missing} missing: were they dropped in decoding?)" if 0 < missing <= LOST_BY_BATCHES else ""
