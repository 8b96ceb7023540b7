"""Outcomes of failed trainings: for the guard during a training, and for the report after it."""

import math
from collections.abc import Iterable

DIVERGED, FAILED_TO_TRAIN = "diverged", "failed to train"
MARGIN = 0.05
"""A loss at most this share below the unigram entropy is no better than the unigram baseline."""


def learned_nothing(loss: float, entropy: float) -> bool:
    """Return whether a model is no better than the unigram baseline, from its loss per token and the unigram entropy.

    Both are in the same unit.
    """
    return loss >= (1 - MARGIN) * entropy


def entropy(counts: Iterable[int]) -> float:
    """Return the entropy of a distribution given by counts, in bits.

    Raises ValueError: all counts are zero, or there is no count.
    """
    positive = [count for count in counts if count]
    if not positive:
        raise ValueError("no text to take the entropy of")
    total = sum(positive)
    return sum(-count / total * math.log2(count / total) for count in positive)
