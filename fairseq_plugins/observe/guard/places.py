"""Find the place in a model where something went wrong first: from bands over the recorder's statistics.

A place has the recorder's name: ``encoder.layers.3.ffn``, or the path of a module outside the layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from fairseq_plugins.core.sub_layers import forward_order
from fairseq_plugins.observe.guard.signals import Band
from fairseq_plugins.observe.recorder import Entry
from fairseq_plugins.observe.recorder.activations import BRANCH, BRANCH_GRADIENT, NORM, STREAM

GRADIENT = "gradient_norm"
ACTIVATIONS, GRADIENTS = (NORM, BRANCH, STREAM), (BRANCH_GRADIENT, GRADIENT)
LIMIT = 4.0
"""Half the width, in deviations, of the band of one statistic at one place."""
FLOOR = 0.1
"""Minimum deviation of the logarithm of a statistic: a tenth of its value."""
LEAST_ENTRIES = 5
"""Minimum number of entries in a band before a value can be outside."""


class Place(NamedTuple):
    """A place such as ``encoder.layers.3.ffn``, and how it shows there: the statistic or module and its problem."""

    name: str
    how: str


class Row(NamedTuple):
    """One statistic of one place in an update, against its band.

    Attributes:
        place: its place.
        kind: the statistic.
        value: its value in this update.
        band: ends of the band; None before :data:`LEAST_ENTRIES` entries.
        distance: deviations from the mean of the logarithm; NaN before the first entry, infinite for a value that is
            not finite.
        since: first update of its time outside the band; ``None`` if it is inside.
    """

    place: str
    kind: str
    value: float
    band: tuple[float, float] | None
    distance: float
    since: int | None


def backward_culprit(values: Mapping[str, float]) -> Place | None:
    """Return the first place, in the order of the backward pass, whose gradient is not finite."""
    split = {name: name.rpartition("/") for name, value in values.items() if not math.isfinite(value)}
    bad = [name for name, (place, _, kind) in split.items() if place and kind in GRADIENTS]
    if not bad:
        return None
    first = max(bad, key=lambda name: (forward_order(split[name][0]), split[name][2] == BRANCH_GRADIENT))
    place, _, kind = split[first]
    return Place(place, f"{kind} is {values[first]:g}")


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
        """Add an entry."""
        self.last = entry.values
        for row in self._rows(entry.update, entry.values):
            name = f"{row.place}/{row.kind}"
            if row.since is None:
                self._since.pop(name, None)
            else:
                self._since[name] = row.since
            if math.isfinite(row.value) and row.value > 0:
                self._bands.setdefault(name, Band(FLOOR, window=20)).take_bounded(math.log(row.value), LIMIT)

    def _rows(self, update: int, values: Mapping[str, float]) -> list[Row]:
        rows = []
        for name, value in values.items():
            place, _, kind = name.rpartition("/")
            if place and kind in (*ACTIVATIONS, *GRADIENTS):
                band = self._bands.get(name, Band(FLOOR))
                known = band.count >= LEAST_ENTRIES
                distance = math.inf
                if math.isfinite(value):
                    distance = band.distance(math.log(value)) if band.count and value > 0 else math.nan
                outside = math.isinf(distance) or (known and abs(distance) > LIMIT)
                low, high = map(math.exp, band.edges(LIMIT))
                since = self._since.get(name, update) if outside else None
                rows.append(Row(place, kind, value, (low, high) if known else None, distance, since))
        return rows

    def place(self, update: int, values: Mapping[str, float]) -> Place | None:
        """Return the place that left its band first; ``None`` if nothing was recorded before.

        Of several, the first activation of the forward pass, else the first gradient of the backward pass. If none has
        left its band, the one furthest from its mean.
        """
        rows = self._rows(update, values)
        if outside := [row for row in rows if row.since is not None]:
            first = min(outside, key=_order)
            band = f" outside {first.band[0]:.3g} to {first.band[1]:.3g}" if first.band else ""
            return Place(first.place, f"{first.kind} {first.value:.3g}{band} since update {first.since}")
        known = [row for row in rows if not math.isnan(row.distance)]
        if not known:
            return None
        worst = max(known, key=lambda row: (abs(row.distance), row.kind in ACTIVATIONS))
        return Place(
            worst.place, f"{worst.kind} {worst.value:.3g} is furthest from its mean, {worst.distance:+.1f} deviations"
        )


def _order(row: Row) -> tuple[Any, ...]:
    """Sort key: by time; activations before gradients; the former in forward order, the latter in backward order."""
    stack, part, layer, site, _ = forward_order(row.place)
    if row.kind in ACTIVATIONS:
        return row.since, 0, stack, part, layer, site, ACTIVATIONS.index(row.kind)
    return row.since, 1, -stack, -part, -layer, -site, GRADIENTS.index(row.kind)


def weakest(values: Mapping[str, float]) -> Place | None:
    """Return the place whose parameters have the smallest gradient: where a training is stuck."""
    ending = f"/{GRADIENT}"
    norms = {name.removesuffix(ending): value for name, value in values.items() if name.endswith(ending)}
    if not norms:
        return None
    least, most = (choose(norms, key=norms.__getitem__) for choose in (min, max))
    return Place(least, f"{GRADIENT} {norms[least]:.3g} is the least; the greatest is {norms[most]:.3g} in {most}")
