"""Which updates are abnormal, told by their loss and the norm of their gradient alone."""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

LEAST_HISTORY = 30
"""Updates that a band has seen before a spike is called one."""
LOSS_FLOOR, NORM_FLOOR = 0.25, 0.25
"""Least deviations: of the loss in bits, of the natural logarithm of the gradient norm."""
WINDOW, RECENT = 30, 10
"""Updates that a band remembers, and those that are compared with the best of the past."""


@dataclass
class Band:
    """Mean and variance of the last values, weighted towards the newest; ``count`` is the number of values so far.

    Attributes:
        floor: minimum deviation, so that a constant sequence is not a problem.
        window: number of values over which a value's weight falls by the factor e; the first ``window`` values count
            alike.
    """

    floor: float
    window: int = 100
    count: int = 0
    mean: float = 0.0
    variance: float = 0.0

    @property
    def deviation(self) -> float:
        """Return the standard deviation, at least :attr:`floor`."""
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
        """Add ``value``, or the edge of the band of ``limit`` deviations: it follows slow changes, not jumps."""
        if self.count:
            low, high = self.edges(limit)
            value = min(max(value, low), high)
        self.take(value)

    def edges(self, limit: float) -> tuple[float, float]:
        """Return lower and upper end of the band, ``limit`` deviations to each side."""
        return self.mean - limit * self.deviation, self.mean + limit * self.deviation


@dataclass(frozen=True)
class Update:
    """Measurements of one update before its step; the same in every process.

    Attributes:
        number: from 1; updates that are dropped keep their number for the next.
        loss: in bits per token; under ``--sentence-avg`` the negative log-likelihood.
        nll: negative log-likelihood in bits per token.
        norm: L2 norm of all gradients of the mean loss before clipping; not finite after an overflow of float16.
        scaled: whether the loss is scaled, in float16.
        tokens: target tokens of the batch.
    """

    number: int
    loss: float
    nll: float
    norm: float
    learning_rate: float
    scaled: bool = False
    tokens: float = 1.0


class Finding(NamedTuple):
    """The problem of an update with its numbers; whether only the norm of the gradient is outside of its band."""

    reason: str
    gradient_alone: bool = False


class Signals:
    """Bands over the loss and the logarithm of the gradient norm of a training, ``limit`` deviations above the mean.

    ``even`` is the loss in bits of a uniform guess over the dictionary; 0 if unknown.
    """

    def __init__(self, limit: float, even: float = 0.0) -> None:
        self.limit, self._even = limit, even
        self.loss, self.norm = Band(LOSS_FLOOR, WINDOW), Band(NORM_FLOOR, WINDOW)
        self.tokens, self.recent, self.best = Band(0.0), Band(0.0, RECENT), Band(LOSS_FLOOR)

    def judge(self, update: Update) -> Finding | None:
        """Return the problem of an ``update`` that is not :func:`hopeless`; without one, add it to the bands."""
        if not math.isfinite(update.norm):
            return None  # an overflow of float16, after which fairseq lowers its loss scale
        # A small batch has a noisier mean and a longer gradient, both by the root of its size.
        wider = math.sqrt(max(1.0, self.tokens.mean / max(update.tokens, 1.0)))
        loss, gradient = self._loss_spike(update, wider), ""
        distance = self.norm.distance(_log(update.norm / wider))
        if self.norm.count >= LEAST_HISTORY and distance > self.limit:
            above = wider * math.exp(self.norm.edges(self.limit)[1])
            gradient = f"gradient norm {update.norm:.4g}, the band ends at {above:.4g} ({distance:.0f} deviations)"
        if loss:
            return Finding(f"{loss}; {gradient}" if gradient else loss)
        if gradient:
            return Finding(gradient, gradient_alone=True)
        self.take(update)
        return None

    def _loss_spike(self, update: Update, wider: float) -> str:
        """Return why the loss is abnormal: above its band, a slow rise, or off the scale; empty if it is not."""
        if self.loss.count >= LEAST_HISTORY:
            distance = self.loss.distance(update.loss) / wider
            if distance > self.limit:
                above = self.loss.mean + self.limit * self.loss.deviation * wider
                return f"loss {update.loss:.4g} bits, the band ends at {above:.4g} ({distance:.0f} deviations)"
            # A rise too slow for the band. A mean of RECENT values varies less than each, by the root of their number.
            recent = replace(self.recent)
            recent.take(update.loss)
            reach = self.limit * max(self.best.deviation / math.sqrt(RECENT), LOSS_FLOOR / 2)
            if recent.mean > self.best.mean + reach:
                before = self.best.mean
                return f"loss {update.loss:.4g} bits, its recent mean {recent.mean:.4g} was {before:.4g} before"
        start = max(self._even, self.loss.mean if self.loss.count else update.loss)
        if self._even and update.loss > 2.0 * start:
            return f"loss {update.loss:.4g} bits, more than twice that of a uniform guess or of the start, {start:.4g}"
        return ""

    def take(self, update: Update) -> None:
        """Add an update to the bands, also one that is applied although :meth:`judge` has found a problem."""
        # A distant value enters as the edge of half the band: one value must not widen the band for the next.
        self.loss.take_bounded(update.loss, self.limit / 2)
        self.recent.take(update.loss)
        if self.loss.count == LEAST_HISTORY or self.loss.mean < self.best.mean:
            self.best = replace(self.loss)
        self.norm.take_bounded(_log(update.norm), self.limit / 2)
        self.tokens.take(update.tokens)

    def state(self) -> dict[str, Any]:
        """Return plain numbers for a checkpoint."""
        bands = {name: band for name, band in vars(self).items() if isinstance(band, Band)}
        return {name: [band.count, band.mean, band.variance] for name, band in bands.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of :meth:`state`."""
        for name, band in vars(self).items():
            if isinstance(band, Band):
                band.count, band.mean, band.variance = state.get(name, (band.count, band.mean, band.variance))


def _log(value: float) -> float:
    return math.log(max(value, 1e-30))


def hopeless(update: Update, given_up: bool) -> str:
    """Return why no training can continue from this update; empty if it may.

    ``given_up``: fairseq has given up, for instance lowering the loss scale.
    """
    if math.isfinite(update.loss) and given_up:
        return "minimum loss scale reached" if update.scaled else "the gradient norm is not finite"
    for name, value, may_overflow in (("loss", update.loss, False), ("gradient norm", update.norm, update.scaled)):
        if not math.isfinite(value) and not may_overflow:
            return f"the {name} is {'not a number' if math.isnan(value) else 'infinite'}"
    return ""
