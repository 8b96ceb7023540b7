"""Interface to libraries that score a whole corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Value:
    """One score of one output.

    Args:
        value: the score, in points (0 to 100; error rates may be above).
        signature: everything the number depends on besides the text, with the version of the library.
        reference_length: tokens of the references as the score counts them; None if it does not count them.
        interval: half the width of the 95 % interval over bootstrap resamples; None if it was not requested.
    """

    value: float
    signature: str
    reference_length: int | None = None
    interval: float | None = None


class CorpusMetric(Protocol):
    """Computes one score of a corpus."""

    def value(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], resamples: int) -> Value:
        """Score ``hypotheses``; with ``resamples`` above 0, compute the interval too."""
        ...
