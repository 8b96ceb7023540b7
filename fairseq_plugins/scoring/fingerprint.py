"""Identify the preparation of a test set by the length of its references.

The number of reference tokens is printed with every BLEU score and differs with each way of preparing a test set, so
it tells a comparable number from one that is not. ``reference_lengths.tsv`` holds the known lengths.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fairseq_plugins.scoring.text import LOST_BY_BATCHES

KNOWN = Path(__file__).with_name("reference_lengths.tsv")


@dataclass(frozen=True)
class KnownLength:
    """One published length: its test set, its form of text, and its meaning."""

    reads: str
    length: int
    sentences: int
    test_set: str
    meaning: str


@cache
def known_lengths() -> tuple[KnownLength, ...]:
    """Return all rows of the table."""
    with open(KNOWN, encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    return tuple(
        KnownLength(row["reads"], int(row["length"]), int(row["sentences"]), row["test_set"], row["meaning"])
        for row in rows
    )


def what_length_says(reads: str, length: int, sentences: int) -> str:
    """Return a sentence about references of ``length`` tokens in the form ``reads``; empty if nothing is known."""
    known = [row for row in known_lengths() if row.reads == reads]
    for row in known:
        if (row.length, row.sentences) == (length, sentences):
            return f"{row.test_set}: {row.meaning}"
    whole = [row for row in known if 0 < row.sentences - sentences <= LOST_BY_BATCHES and length < row.length]
    if like := [row for row in whole if _like(row, length, sentences)]:
        row = min(like, key=lambda row: abs(_ratio(row, length, sentences) - 1))
        return (
            f"looks like {row.test_set} with {row.sentences - sentences} of {row.sentences} sentences lost: not "
            "comparable; decode every sentence"
        )
    # Plain text is counted in one way, so another length means another text; tokens depend on the preparation.
    near = [row for row in known if row.sentences == sentences and reads != "plain" and _like(row, length, sentences)]
    return _unknown(near, length) if near else ""


def _unknown(near: Sequence[KnownLength], length: int) -> str:
    closest = min(near, key=lambda row: abs(row.length - length))
    return (
        f"looks like {closest.test_set}, prepared in an unknown way: {abs(length - closest.length)} "
        f"tokens {'fewer' if length < closest.length else 'more'} than {closest.length} ({closest.meaning})"
    )


def _like(row: KnownLength, length: int, sentences: int) -> bool:
    """Return whether the mean sentence is as long as in ``row``, within 2 %."""
    return abs(_ratio(row, length, sentences) - 1) < 0.02


def _ratio(row: KnownLength, length: int, sentences: int) -> float:
    return (length / sentences) / (row.length / row.sentences)
