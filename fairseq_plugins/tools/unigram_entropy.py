"""How a training fails: for the guard while it runs, and for the report after it."""

from __future__ import annotations

import math
from collections.abc import Iterable

DIVERGED, FAILED_TO_TRAIN = "diverged", "failed to train"
MARGIN = 0.05
"""A loss at most this share below the unigram entropy is no better than the unigram baseline."""


def learned_nothing(loss: float, entropy: float) -> bool:
    """Whether a model is no better than the unigram baseline.

    Args:
        loss: negative log-likelihood per token.
        entropy: that of the target tokens, in the same unit.
    """
    return loss >= (1 - MARGIN) * entropy


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
