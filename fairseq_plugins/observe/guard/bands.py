"""A running mean and deviation, and how far a value lies outside of what they allow."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Band:
    """Mean and deviation of the last values, the newest counting most.

    Attributes:
        floor: the least deviation that is reckoned with, so that a constant sequence is no trap.
        window: number of values over which a value's weight falls by the factor e; the first ``window`` values count
            alike.
        count: values that were taken in.
        mean: of the values.
        variance: likewise.
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
        """Deviations between ``value`` and the mean; negative below it."""
        return (value - self.mean) / self.deviation

    def take(self, value: float) -> None:
        """Take ``value`` into the mean and the deviation."""
        self.count += 1
        weight = 1.0 / min(self.count, self.window)
        change = value - self.mean
        self.mean += weight * change
        self.variance = (1.0 - weight) * (self.variance + weight * change * change)

    def take_bounded(self, value: float, limit: float) -> None:
        """Take ``value``, or the edge of the band where it lies outside: what is slow is followed, a jump is not.

        Args:
            value: the value.
            limit: half the width of the band, in deviations.
        """
        if self.count:
            reach = limit * self.deviation
            value = min(max(value, self.mean - reach), self.mean + reach)
        self.take(value)

    def edges(self, limit: float) -> tuple[float, float]:
        """Lower and upper end of the band that is ``limit`` deviations wide to each side."""
        return self.mean - limit * self.deviation, self.mean + limit * self.deviation

    def state(self) -> list[float]:
        """Plain numbers for a checkpoint."""
        return [self.count, self.mean, self.variance]

    def restore(self, state: list[float]) -> None:
        """Take up what :meth:`state` has written."""
        self.count, self.mean, self.variance = int(state[0]), float(state[1]), float(state[2])
