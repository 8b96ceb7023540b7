"""Seeded choices: everything random in the corpus goes through here."""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


class Chooser:
    """A random source with the few ways of choosing that the grammar needs."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """True with ``probability``."""
        return self._random() < probability

    def one(self, options: Sequence[T]) -> T:
        """One of ``options``, all equally likely."""
        return options[int(self._random() * len(options))]

    def integer(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""
        return low + int(self._random() * (high - low + 1))

    def weighted(self, weights: Mapping[T, float]) -> T:
        """One of the keys, in proportion to their weights."""
        bounds = list(itertools.accumulate(weights.values()))
        return list(weights)[bisect.bisect(bounds, self._random() * bounds[-1], hi=len(bounds) - 1)]
