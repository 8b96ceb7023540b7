"""Find the place in a model where something went wrong first: from the pass itself, or from bands over statistics.

A place has the recorder's name: ``encoder.layers.3.ffn``, or the path of a module outside the layers.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils
from torch import Tensor, nn

from fairseq_plugins.core.residual import Residual
from fairseq_plugins.core.sub_layers import forward_order
from fairseq_plugins.observe.guard.bands import Band
from fairseq_plugins.observe.recorder import Entry
from fairseq_plugins.observe.recorder.activations import BRANCH, BRANCH_GRADIENT, NORM, STREAM
from fairseq_plugins.observe.recorder.gradients import group_of

GRADIENT = "gradient_norm"
ACTIVATIONS, GRADIENTS = (NORM, BRANCH, STREAM), (BRANCH_GRADIENT, GRADIENT)
LIMIT = 4.0
"""Half the width, in deviations, of the band of one statistic at one place."""
FLOOR = 0.1
"""Minimum deviation of the logarithm of a statistic: a tenth of its value."""
LEAST_ENTRIES = 5
"""Minimum number of entries in a band before a value can be outside."""


@dataclass(frozen=True)
class Place:
    """A place, and the reason for it.

    Attributes:
        name: ``encoder.layers.3.ffn``.
        how: the statistic or the module, and its problem.
    """

    name: str
    how: str


def is_finite(x: Any) -> bool:
    """Return whether the output of a module is finite; of several outputs only the first, others may be masks."""
    first = x[0] if isinstance(x, (tuple, list)) and x else x
    if not isinstance(first, Tensor) or not first.is_floating_point():
        return True
    return bool(torch.isfinite(first.detach()).all())


def not_finite(model: nn.Module) -> list[str]:
    """Return the names of parameters that are not finite."""
    return [name for name, parameter in model.named_parameters() if not is_finite(parameter)]


class FirstNotFinite:
    """Finds the first module, in the order in which they run, whose output is not finite."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        # A module without parameters passes on its input; the sub-layers of a layer share dropouts.
        self._modules = {
            path: module
            for path, module in model.named_modules()
            if path and (isinstance(module, Residual) or next(module.parameters(), None) is not None)
        }
        self._calls = 0
        self._found: tuple[int, str] | None = None

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Watch the modules that run inside the context."""
        handles = [module.register_forward_hook(self._hook(path)) for path, module in self._modules.items()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, path: str) -> Callable[..., None]:
        def see(module: nn.Module, inputs: Any, output: Any) -> None:
            self._calls += 1
            if self._found is None and not (is_finite(output) and self._is_given_finite(module, inputs)):
                self._found = self._calls, path

        return see

    def _is_given_finite(self, module: nn.Module, inputs: Any) -> bool:
        """Only for a residual: an attention is not always called as a module, so its branch is first visible here."""
        return not isinstance(module, Residual) or all(is_finite(one) for one in inputs)

    def place(self, group: Any, together: bool) -> Place | None:
        """Return the first place; with several processes the first of all, in each of them.

        Args:
            group: the process group.
            together: whether there are several.
        """
        path = self._found[1] if self._found is not None else None
        if together:
            path = self._first_of_all(group)
        if path is None:
            return None
        what = "branch or sum" if isinstance(self._modules[path], Residual) else "output"
        return Place(group_of(f"{path}.weight"), f"the {what} of {path} is the first that is not finite")

    def _first_of_all(self, group: Any) -> str | None:
        device = next(self._model.parameters()).device
        paths = list(self._modules)
        calls = torch.full((len(paths),), -math.inf, dtype=torch.float64, device=device)
        if self._found is not None:
            calls[paths.index(self._found[1])] = -float(self._found[0])
        calls = distributed_utils.all_reduce(calls, group=group, op="max")
        first = int(calls.argmax())
        return paths[first] if math.isfinite(float(calls[first])) else None


def backward_culprit(values: Mapping[str, float]) -> Place | None:
    """Return the first place, in the order of the backward pass, whose gradient is not finite."""
    bad = [name for name, value in values.items() if "/" in name and not math.isfinite(value) and _is_gradient(name)]
    if not bad:
        return None
    first = max(bad, key=lambda name: (forward_order(_place(name)), _kind(name) == BRANCH_GRADIENT))
    return Place(_place(first), f"{_kind(first)} is {values[first]:g}")


def _place(name: str) -> str:
    return name.rpartition("/")[0]


def _kind(name: str) -> str:
    return name.rpartition("/")[2]


def _is_gradient(name: str) -> bool:
    return _kind(name) in GRADIENTS


@dataclass(frozen=True)
class Row:
    """One statistic of one place in an update, against its band.

    Attributes:
        place: its place.
        kind: the statistic.
        value: its value in this update.
        low: lower end of the band; NaN if there is no band yet.
        high: upper end; NaN if there is no band yet.
        distance: deviations from the mean of the logarithm; NaN without a band, infinite for a value that is not
            finite.
        ratio: value by geometric mean so far; NaN if nothing was recorded before.
        since: first update of its time outside the band; ``None`` if it is inside.
    """

    place: str
    kind: str
    value: float
    low: float
    high: float
    distance: float
    ratio: float
    since: int | None

    @property
    def badness(self) -> float:
        """Sort key: the worst is highest."""
        return -1.0 if math.isnan(self.distance) else abs(self.distance)


class PlaceBands:
    """Bands over the logarithm of every statistic at every place; an observer of the recorder."""

    def __init__(self) -> None:
        self._bands: dict[str, Band] = {}
        self._since: dict[str, int] = {}
        self.last: Entry | None = None

    def __call__(self, entry: Entry) -> None:
        """Add an entry."""
        self.last = entry
        for name, value in entry.values.items():
            if "/" not in name or _kind(name) not in (*ACTIVATIONS, *GRADIENTS):
                continue
            if self._outside(name, value):
                self._since.setdefault(name, entry.update)
            else:
                self._since.pop(name, None)
            if math.isfinite(value) and value > 0:
                self._bands.setdefault(name, Band(FLOOR, window=20)).take_bounded(math.log(value), LIMIT)

    def _outside(self, name: str, value: float) -> bool:
        distance = self._distance(name, value)
        return not math.isnan(distance) and abs(distance) > LIMIT

    def _distance(self, name: str, value: float) -> float:
        if not math.isfinite(value):
            return math.inf
        band = self._bands.get(name)
        if band is None or band.count < LEAST_ENTRIES or value <= 0:
            return math.nan
        return band.distance(math.log(value))

    def rows(self, update: int, values: Mapping[str, float]) -> list[Row]:
        """Return every statistic of an update, the worst first."""
        rows = [
            self._row(update, name, value)
            for name, value in values.items()
            if "/" in name and _kind(name) in (*ACTIVATIONS, *GRADIENTS)
        ]
        return sorted(rows, key=lambda row: (-row.badness, row.kind in GRADIENTS, forward_order(row.place), row.kind))

    def _row(self, update: int, name: str, value: float) -> Row:
        distance = self._distance(name, value)
        low, high, ratio, band = math.nan, math.nan, math.nan, self._bands.get(name)
        if band is not None:
            ratio = value / math.exp(band.mean)
        if band is not None and band.count >= LEAST_ENTRIES:
            low, high = (math.exp(edge) for edge in band.edges(LIMIT))
        since = self._since.get(name, update) if self._outside(name, value) else None
        return Row(_place(name), _kind(name), value, low, high, distance, ratio, since)


def first_outside(rows: list[Row]) -> Place | None:
    """Return the place that left its band first; ``None`` if nothing was recorded before.

    Of several, the first activation of the forward pass, else the first gradient of the backward pass. If none has left
    its band, the one furthest from its mean; without bands, the one that has changed most.
    """
    outside = [row for row in rows if row.since is not None]
    if outside:
        first = min(outside, key=_order)
        return Place(
            first.place,
            f"{first.kind} {first.value:.3g} outside {first.low:.3g} to {first.high:.3g} since update {first.since}",
        )
    known = [row for row in rows if not math.isnan(row.distance)]
    if known:
        worst = max(known, key=lambda row: row.badness)
        return Place(worst.place, f"{worst.kind} {worst.value:.3g} is within its band, but closest to leaving it")
    changed = [row for row in rows if row.ratio > 0]
    if not changed:
        return None
    most = max(changed, key=lambda row: abs(math.log(row.ratio)))
    return Place(most.place, f"{most.kind} {most.value:.3g} is {most.ratio:.3g} times its mean; there is no band yet")


def weakest(values: Mapping[str, float]) -> Place | None:
    """Return the place whose parameters have the smallest gradient: where a training is stuck."""
    norms = {_place(name): value for name, value in values.items() if "/" in name and _kind(name) == GRADIENT}
    if not norms:
        return None
    least, most = min(norms, key=lambda one: norms[one]), max(norms, key=lambda one: norms[one])
    return Place(least, f"{GRADIENT} {norms[least]:.3g} is the least; the greatest is {norms[most]:.3g} in {most}")


def _order(row: Row) -> tuple[Any, ...]:
    """Sort key: by time; activations before gradients; the former in forward order, the latter in backward order."""
    stack, part, layer, site, _ = forward_order(row.place)
    if row.kind in ACTIVATIONS:
        return row.since, 0, stack, part, layer, site, ACTIVATIONS.index(row.kind)
    return row.since, 1, -stack, -part, -layer, -site, GRADIENTS.index(row.kind)
