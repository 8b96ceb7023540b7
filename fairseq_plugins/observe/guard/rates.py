"""A factor on the learning rate, after the schedule.

Schedules set a rate, or multiply the current one. So each sees its own rate before it acts, and the factor is applied
afterwards. The factor is a power of two: removing it and applying it again loses no bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from fairseq.logging import metrics


class Rates:
    """The factor of one training.

    Attributes:
        halvings: the factor is one half to this power.
    """

    def __init__(self) -> None:
        self.halvings = 0
        self._lifted = False

    @property
    def factor(self) -> float:
        """The factor on the scheduled rate."""
        return 0.5**self.halvings

    def halve(self, optimizer: Any) -> None:
        """Halve the rate from now on."""
        self.halvings += 1
        _multiply(optimizer, 0.5)

    def restore(self, halvings: int, optimizer: Any) -> None:
        """Restore the factor of a checkpoint, whose optimizer holds the scheduled rate."""
        self.halvings = halvings
        _multiply(optimizer, self.factor)

    @property
    def at_work(self) -> bool:
        """Whether the factor is not 1."""
        return self.halvings > 0 and not self._lifted

    @contextlib.contextmanager
    def lifted(self, optimizer: Any) -> Iterator[None]:
        """Set the scheduled rate inside the context."""
        _multiply(optimizer, 1.0 / self.factor)
        self._lifted = True
        try:
            yield
        finally:
            self._lifted = False
            _multiply(optimizer, self.factor)

    def log(self, rate: float) -> float:
        """Log the rate with the factor in fairseq's meters, and return it."""
        metrics.log_scalar("lr", rate * self.factor, weight=0, priority=300)
        return rate * self.factor


def _multiply(optimizer: Any, by: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * by
