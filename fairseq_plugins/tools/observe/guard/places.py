"""Find the place in a model where something went wrong first: from bands over the recorder's statistics.

A place has the recorder's name: ``encoder.layers.3.ffn``, or the path of a module outside the layers.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from fairseq_plugins.core.sub_layers import forward_order
from fairseq_plugins.tools.observe.guard.signals import Band
from fairseq_plugins.tools.observe.recorder import Entry
from fairseq_plugins.tools.observe.recorder.activations import BRANCH, BRANCH_GRADIENT, NORM, STREAM

GRADIENT = "gradient_norm"
ACTIVATIONS, GRADIENTS = (NORM, BRANCH, STREAM), (BRANCH_GRADIENT, GRADIENT)
LIMIT = 4.0
"""Half the width, in deviations, of the band of one statistic at one place."""
FLOOR = 0.1
"""Minimum deviation of the logarithm of a statistic: a tenth of its value."""
LEAST_ENTRIES = 5
"""Minimum number of entries in a band before a value can be outside."""


class FaultPlace(NamedTuple):
    """A place such as ``encoder.layers.3.ffn``, and how it shows there: the statistic or module and its problem."""

    name: str
    how: str


class PlaceBands:
    """Bands over the logarithm of every statistic at every place; an observer of the recorder.

    Attributes:
        last: the values of the last entry.
    """

    def __init__(self) -> None:
        self._bands: dict[str, Band] = {}
        self._since: dict[str, int] = {}
        self.last: Mapping[str, float] = {}

    def __call__(self, entry: Entry) -> None:
        """Add an entry; the values of a dropped update do not widen the bands."""
        self.last = entry.values
        self._since = self._outside(entry.update, entry.values)
        for name, value in entry.values.items():
            if entry.applied and _is_of_place(name) and math.isfinite(value) and value > 0:
                self._bands.setdefault(name, Band(FLOOR, window=20)).take_bounded(math.log(value), LIMIT)

    def _outside(self, update: int, values: Mapping[str, float]) -> dict[str, int]:
        """Return the statistics that are outside their bands, each with the first update of its time outside."""
        since = {}
        for name, value in values.items():
            band = self._bands.get(name, Band(FLOOR))
            known = band.count >= LEAST_ENTRIES and value > 0
            outside = not math.isfinite(value) or (known and abs(band.distance(math.log(value))) > LIMIT)
            if outside and _is_of_place(name):
                since[name] = self._since.get(name, update)
        return since

    def place(self, update: int, values: Mapping[str, float]) -> FaultPlace | None:
        """Return the place that left its band first; ``None`` if nothing was recorded before.

        Values that are not finite come first, then the first activation of the forward pass, then the first gradient
        of the backward pass. If no place has left its band, the place furthest from its mean is returned.
        """
        since = self._outside(update, values)
        since = {name: first for name, first in since.items() if not math.isfinite(values[name])} or since
        if not since:
            far = {n: self._bands[n].distance(math.log(v)) for n, v in values.items() if n in self._bands and v > 0}
            if not far:
                return None
            worst = max(far, key=lambda name: (abs(far[name]), name.rpartition("/")[2] in ACTIVATIONS))
            place, _, kind = worst.rpartition("/")
            how = f"{values[worst]:.3g} is furthest from its mean, {far[worst]:+.1f} deviations"
            return FaultPlace(place, f"{kind} {how}")
        first = min(since, key=lambda name: (since[name], *_order(name)))
        place, _, kind = first.rpartition("/")
        how = f"{kind} {values[first]:.3g}"
        if (band := self._bands.get(first)) and band.count >= LEAST_ENTRIES:
            low, high = map(math.exp, band.edges(LIMIT))
            how += f" outside {low:.3g} to {high:.3g}"
        return FaultPlace(place, f"{how} since update {since[first]}")


def _is_of_place(name: str) -> bool:
    place, _, kind = name.rpartition("/")
    return bool(place) and kind in (*ACTIVATIONS, *GRADIENTS)


def _order(name: str) -> tuple[int, ...]:
    """Sort key: activations before gradients; the former in forward order, the latter in backward order."""
    place, _, kind = name.rpartition("/")
    stack, part, layer, site, _ = forward_order(place)
    if kind in ACTIVATIONS:
        return 0, stack, part, layer, site, ACTIVATIONS.index(kind)
    return 1, -stack, -part, -layer, -site, GRADIENTS.index(kind)


def weakest(values: Mapping[str, float]) -> FaultPlace | None:
    """Return the place whose parameters have the smallest gradient: where a training is stuck."""
    ending = f"/{GRADIENT}"
    norms = {name.removesuffix(ending): value for name, value in values.items() if name.endswith(ending)}
    if not norms:
        return None
    least, most = (choose(norms, key=norms.__getitem__) for choose in (min, max))
    return FaultPlace(least, f"{GRADIENT} {norms[least]:.3g} is the least; the greatest is {norms[most]:.3g} in {most}")
