"""Which updates are abnormal, told by their loss, the norm of their gradient and the loss scale alone."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fairseq_plugins.observe.guard.bands import Band

LEAST_HISTORY = 30
"""Updates that a band has seen before a spike is called one."""
LOSS_FLOOR, NORM_FLOOR = 0.25, 0.25
"""Least deviations: of the loss in bits, of the natural logarithm of the gradient norm."""
WINDOW, RECENT = 30, 10
"""Updates that a band remembers, and those that are compared with the best of the past."""
FALL, FALL_WINDOW = 256.0, 1000
"""A loss scale that falls by this factor within so many updates has collapsed."""
NOT_FINITE, SPIKE, GRADIENT_SPIKE = "not finite", "spike", "gradient spike"
COLLAPSE, PLATEAU = "loss scale", "failed to train"


@dataclass(frozen=True)
class Update:
    """What is seen of one update before its step; the same in every process.

    Attributes:
        number: of the update, from 1; updates that are dropped keep their number for the next.
        loss: in bits, over what the criterion's sample size counts.
        nll: negative log-likelihood in bits per token.
        norm: L2 norm of all gradients of the mean loss before clipping; not finite after an overflow of float16.
        learning_rate: learning rate of the update.
        loss_scale: ``None`` in full precision.
        tokens: of the batch; what its loss is the mean of.
    """

    number: int
    loss: float
    nll: float
    norm: float
    learning_rate: float
    loss_scale: float | None = None
    tokens: float = 1.0


@dataclass(frozen=True)
class Finding:
    """The problem of an update.

    Attributes:
        kind: one of :data:`NOT_FINITE`, :data:`SPIKE`, :data:`GRADIENT_SPIKE` (of the norm alone: the loss is inside
            of its band), :data:`COLLAPSE`, :data:`PLATEAU`.
        reason: description with the numbers.
    """

    kind: str
    reason: str


class Signals:
    """Bands over the loss and the logarithm of the gradient norm of a training.

    Args:
        limit: width of the bands, in deviations above the mean.
        even: loss in bits of a uniform guess over the dictionary; 0 if unknown.
    """

    def __init__(self, limit: float, even: float = 0.0) -> None:
        self.limit, self._even = limit, even
        self.loss, self.norm = Band(LOSS_FLOOR, WINDOW), Band(NORM_FLOOR, WINDOW)
        self._recent, self._best = Band(0.0, RECENT), Band(LOSS_FLOOR)
        self._tokens = Band(0.0)
        self._scales: deque[float] = deque(maxlen=FALL_WINDOW)

    def judge(self, update: Update, minimum_reached: bool = False) -> Finding | None:
        """Return the problem of ``update``; without a problem, add it to the bands, see :meth:`take`.

        Args:
            update: the update.
            minimum_reached: fairseq has given up lowering the loss scale.
        """
        if not math.isfinite(update.loss):
            return Finding(NOT_FINITE, f"the loss is {in_words(update.loss)}")
        if minimum_reached:
            return Finding(COLLAPSE, "minimum loss scale reached")
        if not math.isfinite(update.norm):
            if update.loss_scale is None:
                return Finding(NOT_FINITE, f"the gradient norm is {in_words(update.norm)}")
            return self._fallen(update.loss_scale)
        loss, gradient = self._loss_spikes(update), self._gradient_spikes(update)
        if loss:
            return Finding(SPIKE, "; ".join([*loss, *gradient]))
        if gradient:
            return Finding(GRADIENT_SPIKE, gradient[0])
        self.take(update)
        return None

    def _fallen(self, scale: float) -> Finding | None:
        """During the initial search for a scale, before any gradient has fitted, it may fall without limit."""
        if not self._scales or scale > max(self._scales) / FALL:
            return None
        before = max(self._scales)
        self._scales.clear()
        return Finding(COLLAPSE, f"the loss scale fell from {before:g} to {scale:g}")

    def _loss_spikes(self, update: Update) -> list[str]:
        if self.loss.count < LEAST_HISTORY:
            return [*self._off_the_scale(update)]
        wider = self._wider(update)
        loss = self.loss.distance(update.loss) / wider
        if loss > self.limit:
            above = self.loss.mean + self.limit * self.loss.deviation * wider
            return [f"loss {update.loss:.4g} bits, the band ends at {above:.4g} ({loss:.0f} deviations)"]
        return [*self._lost_ground(update)] or [*self._off_the_scale(update)]

    def _gradient_spikes(self, update: Update) -> list[str]:
        wider = self._wider(update)
        norm = self.norm.distance(_log(update.norm / wider))
        if self.norm.count < LEAST_HISTORY or norm <= self.limit:
            return []
        above = wider * math.exp(self.norm.edges(self.limit)[1])
        return [f"gradient norm {update.norm:.4g}, the band ends at {above:.4g} ({norm:.0f} deviations)"]

    def _wider(self, update: Update) -> float:
        """Factor for small batches: by the root of their size, a mean varies more and its gradient is longer."""
        if not self._tokens.count:
            return 1.0
        return math.sqrt(max(1.0, self._tokens.mean / max(update.tokens, 1.0)))

    def _lost_ground(self, update: Update) -> Iterator[str]:
        """Detect a rise too slow for the band: compares the new recent mean with the best of the past."""
        recent = replace(self._recent)
        recent.take(update.loss)
        # A mean of RECENT values varies less than each, by the root of their number.
        reach = self.limit * max(self._best.deviation / math.sqrt(RECENT), LOSS_FLOOR / 2)
        if recent.mean > self._best.mean + reach:
            yield f"loss {update.loss:.4g} bits, its recent mean {recent.mean:.4g} was {self._best.mean:.4g} before"

    def _off_the_scale(self, update: Update) -> Iterator[str]:
        """Detect a loss above twice that of a model that knows nothing; needs no history."""
        start = max(self._even, self.loss.mean if self.loss.count else update.loss)
        if self._even and update.loss > 2.0 * start:
            yield f"loss {update.loss:.4g} bits, more than twice that of a uniform guess or of the start, {start:.4g}"

    def take(self, update: Update) -> None:
        """Add an update to the bands that is applied although :meth:`judge` has found a problem."""
        self.loss.take_bounded(update.loss, self.limit / 2)
        self._recent.take(update.loss)
        if self.loss.count == LEAST_HISTORY or self.loss.mean < self._best.mean:
            self._best = replace(self.loss)
        # A distant value enters as the edge of half the band: one value must not widen the band for the next.
        self.norm.take_bounded(_log(update.norm), self.limit / 2)
        self._tokens.take(update.tokens)
        if update.loss_scale is not None:
            self._scales.append(update.loss_scale)

    def state(self) -> dict[str, Any]:
        """Return plain numbers for a checkpoint."""
        return {name: band.state() for name, band in self._bands().items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of :meth:`state`."""
        for name, band in self._bands().items():
            if name in state:
                band.restore(state[name])

    def _bands(self) -> dict[str, Band]:
        return {
            "loss": self.loss,
            "norm": self.norm,
            "tokens": self._tokens,
            "recent": self._recent,
            "best": self._best,
        }


def _log(value: float) -> float:
    return math.log(max(value, 1e-30))


def in_words(value: float) -> str:
    """Return the word for a number that is not finite."""
    if math.isnan(value):
        return "not a number"
    return "infinite" if value > 0 else "minus infinity"
