"""Words for what became of a training, and when it counts as one that has learned nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

OK, DIVERGED, FAILED_TO_TRAIN, UNKNOWN = "ok", "diverged", "failed to train", "unknown"
_MARGIN = 0.05


@dataclass(frozen=True)
class Verdict:
    """What became of a training: one of the words above, and the reason."""

    outcome: str
    reason: str

    @property
    def diverged(self) -> bool:
        """Whether nothing was learned, for whichever of the two reasons."""
        return self.outcome in (DIVERGED, FAILED_TO_TRAIN)


def learned_nothing(loss: float, entropy: float) -> bool:
    """Whether a model knows no more than how frequent each token is: its loss is within 5 % of that entropy, or above.

    Args:
        loss: negative log-likelihood per token.
        entropy: of the target tokens, in the same unit.
    """
    return loss >= (1 - _MARGIN) * entropy


def unigram_entropy(lines: Iterable[str]) -> float:
    """Entropy of the token distribution, in bits per token, with one end of sentence a line, as fairseq counts them.

    It is the loss of a model that has learned how frequent each token is and nothing else.

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
