"""Select cases that represent the others: the fast tests run those, ``make test-all`` runs all.

A promise reads some axes, and gets the fewest cases that hold each structure of those axes once. A structure is a value
of an axis together with the options of its part that are not at their defaults. So a new part, or an option in a new
use, brings a representative without an edit. Promises about checkpoints and processes read what a model stores.
"""

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import pytest

from fairseq_plugins.core.method import GENERAL_OPTIONS, METHODS, PARTS, Axis
from tests import models

Reads = Axis | tuple[Axis, ...] | Callable[[str], set[tuple[Any, ...]]]
"""An axis, axes whose values matter together, or what gives the structures of a case."""
STRUCTURE = [axis for axis in Axis if axis not in (Axis.REPARAM, Axis.INIT, Axis.BASE_INIT)]
EVERY_MODEL_HAS = {axis.value: METHODS["post_ln"].choice(axis) for axis in Axis}


def values_of(case: str) -> dict[str, Any]:
    """Axes and options of a case of ``tests/models.py``, or of a method, by name."""
    if case == "deep":  # the model without a method
        return dict(EVERY_MODEL_HAS)
    if case in METHODS:
        method = METHODS[case]
        return {**{axis.value: method.choice(axis) for axis in Axis}, **method.options}
    words = models.COMBINATIONS[case].split()
    flags = zip(words[::2], words[1::2], strict=True)
    return {**EVERY_MODEL_HAS, **{name[2:].replace("-", "_"): value for name, value in flags}}


def structures(case: str, *reads: Reads) -> set[tuple[Any, ...]]:
    """The values of these axes in ``case``, for a promise that reads them."""
    values = values_of(case)
    found: set[tuple[Any, ...]] = {(name,) for name in GENERAL_OPTIONS if name in values}
    for axes in reads:
        if callable(axes):
            found |= axes(case)
            continue
        together = axes if isinstance(axes, tuple) else (axes,)
        parts = [(axis.value, values[axis.value]) for axis in together]
        chosen_parts = [PARTS[axis][name] for axis in together for name in str(values[axis.value]).split(",")]
        options = {option for part in chosen_parts for option in part.options}
        chosen = {(o.name, values[o.name]) for o in options if str(values.get(o.name, o.default)) != str(o.default)}
        found.add((*parts, *sorted(chosen)))
    return found


@functools.cache
def stored(case: str) -> set[tuple[Any, ...]]:
    """Each module's entries in the state dict of a case of ``tests/models.py``, without the number of its layer.

    Of a tensor count its name, whether it is trained, and whether it is a single number.
    """
    model = models.build(*models.CASES[case])
    trained = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    modules: dict[str, set[tuple[Any, ...]]] = {}
    for name, value in model.state_dict().items():
        owner, _, tensor = re.sub(r"\.\d+\.", ".", name).rpartition(".")
        modules.setdefault(owner, set()).add((tensor, name in trained, value.numel() == 1))
    return {(owner, frozenset(tensors)) for owner, tensors in modules.items()}


def representatives(cases: Iterable[str], *reads: Reads) -> list[str]:
    """A small subset of ``cases`` with all their structures, in their order."""
    return fewest({case: structures(case, *reads) for case in cases})


def fewest(having: Mapping[str, set[Any]]) -> list[str]:
    """A small subset of the keys whose sets cover all sets, in their order."""
    left, chosen = dict(having), set()
    order = list(left)
    while any(left.values()):
        best = max(order, key=lambda case: len(left[case]))
        chosen.add(best)
        found = left[best]
        left = {case: rest - found for case, rest in left.items()}
    return [case for case in order if case in chosen]


def for_each(name: str, cases: Iterable[str], *reads: Reads) -> pytest.MarkDecorator:
    """Parametrise ``name`` over ``cases``: the representatives in the fast tests, the others in the slow ones only."""
    cases = list(cases)
    return pytest.mark.parametrize(name, slow_but(representatives(cases, *reads), cases))


def slow_but(fast: Collection[str], cases: Iterable[str]) -> list[Any]:
    """The cases, for ``pytest.mark.parametrize``: all but those in ``fast`` run in the slow tests only."""
    return [case if case in fast else pytest.param(case, marks=pytest.mark.slow) for case in cases]
