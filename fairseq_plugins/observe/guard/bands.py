"""A running mean and deviation, and the distance of a value from them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Band:
    """Mean and deviation of the last values, weighted towards the newest.

    Attributes:
        floor: minimum deviation, so that a constant sequence is not a problem.
        window: number of values over which a value's weight falls by the factor e; the first ``window`` values count
            alike.
        count: number of values so far.
        mean: mean of the values.
        variance: variance of the values.
    """

    floor: float
    window: int = 100
    count: int = 0
    mean: float = 0.0
    variance: float = 0.0

    @property
    def deviation(self) -> float:
        """At least :attr:`floor`."""
        return max(math.sqrt(self.variance), self.floor)

    def distance(self, value: float) -> float:
        """Return the distance of ``value`` from the mean in deviations; negative below it."""
        return (value - self.mean) / self.deviation

    def take(self, value: float) -> None:
        """Add ``value`` to the mean and the deviation."""
        self.count += 1
        weight = 1.0 / min(self.count, self.window)
        change = value - self.mean
        self.mean += weight * change
        self.variance = (1.0 - weight) * (self.variance + weight * change * change)

    def take_bounded(self, value: float, limit: float) -> None:
        """Add ``value``, or the edge of the band if it lies outside: the band follows slow changes, not jumps.

        Args:
            value: the value.
            limit: half the width of the band, in deviations.
        """
        if self.count:
            reach = limit * self.deviation
            value = min(max(value, self.mean - reach), self.mean + reach)
        self.take(value)

    def edges(self, limit: float) -> tuple[float, float]:
        """Return lower and upper end of the band, ``limit`` deviations to each side."""
        return self.mean - limit * self.deviation, self.mean + limit * self.deviation

    def state(self) -> list[float]:
        """Return plain numbers for a checkpoint."""
        return [self.count, self.mean, self.variance]

    def restore(self, state: list[float]) -> None:
        """Restore the result of :meth:`state`."""
        self.count, self.mean, self.variance = int(state[0]), float(state[1]), float(state[2])
