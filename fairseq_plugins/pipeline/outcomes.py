"""Outcomes of a training, and the criterion for ``failed to train``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

OK, DIVERGED, FAILED_TO_TRAIN, UNKNOWN = "ok", "diverged", "failed to train", "unknown"
_MARGIN = 0.05


@dataclass(frozen=True)
class Verdict:
    """Outcome of a training, one of the words above, and the reason."""

    outcome: str
    reason: str

    @property
    def diverged(self) -> bool:
        """Whether the training diverged or failed to train."""
        return self.outcome in (DIVERGED, FAILED_TO_TRAIN)


def learned_nothing(loss: float, entropy: float) -> bool:
    """Whether a model has learned only token frequencies: its loss is at most 5 % below their entropy, or above it.

    Args:
        loss: negative log-likelihood per token.
        entropy: of the target tokens, in the same unit.
    """
    return loss >= (1 - _MARGIN) * entropy


def unigram_entropy(lines: Iterable[str]) -> float:
    """Entropy of the token distribution, in bits per token, with one ``</s>`` per line, as in fairseq.

    It is the loss of a model that has learned only token frequencies.

    Raises:
        ValueError: there is no line.
    """
    counts: Counter[str | None] = Counter()
    for line in lines:
        counts.update(line.split())
        counts[None] += 1
    return entropy(counts.values())


def entropy(counts: Iterable[int]) -> float:
    """Entropy of a distribution given by counts, in bits.

    Raises:
        ValueError: all counts are zero, or there is none.
    """
    positive = [count for count in counts if count]
    total = sum(positive)
    if not total:
        raise ValueError("no text to take the entropy of")
    return sum(-count / total * math.log2(count / total) for count in positive)
