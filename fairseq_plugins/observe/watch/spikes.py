"""Spikes of a series: values far above those before them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

WINDOW, DEVIATIONS = 50, 6.0
"""Records that a value is compared with, and how many standard deviations above their mean it must be."""
FEWEST = 10
"""Records that must lie before a value is judged."""


def spikes(values: Mapping[int, float], window: int = WINDOW, deviations: float = DEVIATIONS) -> list[int]:
    """Updates at which a value was a spike.

    A value is a spike if it is above mean + ``deviations`` times the standard deviation (of the population) of the
    ``window`` finite values before it; at least :data:`FEWEST` must be there. A spike counts among the values before
    the next, so that a lasting rise is found once and not for ever. What is not finite is a spike wherever it stands,
    and enters no mean.

    Args:
        values: by number of updates.
        window: how many values before it one is compared with.
        deviations: how far above their mean it must be.
    """
    found = []
    before: deque[float] = deque(maxlen=window)
    for updates, value in sorted(values.items()):
        if not math.isfinite(value):
            found.append(updates)
            continue
        if len(before) >= min(FEWEST, window) and value > _limit(before, deviations):
            found.append(updates)
        before.append(value)
    return found


def _limit(before: deque[float], deviations: float) -> float:
    mean = math.fsum(before) / len(before)
    variance = math.fsum((value - mean) ** 2 for value in before) / len(before)
    return mean + deviations * math.sqrt(variance)
