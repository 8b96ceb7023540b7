"""Spikes of a series: values far above those before them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

WINDOW, DEVIATIONS = 50, 6.0
"""Number of records that a value is compared with, and the threshold in standard deviations above their mean."""
FEWEST = 10
"""Minimum number of records before a value is judged."""


def spikes(values: Mapping[int, float], window: int = WINDOW, deviations: float = DEVIATIONS) -> list[int]:
    """Return the updates at which a value was a spike.

    A value is a spike if it is above mean + ``deviations`` times the standard deviation (of the population) of the
    ``window`` finite values before it; at least :data:`FEWEST` must be there. A spike counts among the values before
    the next, so that a lasting rise is found once and not forever. A value that is not finite is always a spike and
    does not enter a mean.

    Args:
        values: the values by number of updates.
        window: number of preceding values that a value is compared with.
        deviations: threshold above their mean, in standard deviations.
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
