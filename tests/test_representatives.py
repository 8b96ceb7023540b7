"""The cases that stand for the others have every structure between them, and a new structure comes in by itself."""

import pytest

from fairseq_plugins.core.method import METHODS, PARTS, Axis, Method, Option, Part
from tests import models
from tests.representatives import Reads, representatives, stored, structures, values_of

READS: list[tuple[Reads, ...]] = [
    (Axis.RESIDUAL,),
    (Axis.NORM_POSITION, Axis.RESIDUAL, Axis.ATTENTION, Axis.LAYER_AGGREGATION, Axis.SOLVER, Axis.BIAS),
    ((Axis.NORM_POSITION, Axis.RESIDUAL), Axis.INIT),
    (stored,),
    (stored, Axis.LAYER_AGGREGATION),
]


@pytest.mark.parametrize("reads", READS)
def test_they_are_fewer_and_have_every_structure(reads: tuple[Reads, ...]) -> None:
    chosen = representatives(models.CASES, *reads)
    assert len(chosen) < len(models.CASES)
    everything = set().union(*(structures(case, *reads) for case in models.CASES))
    assert set().union(*(structures(case, *reads) for case in chosen)) == everything


def test_every_registered_part_of_an_axis_is_among_the_representatives() -> None:
    for axis in set(Axis) - {Axis.BASE_INIT}:  # tests/methods draws from each base by itself
        chosen = representatives(models.CASES, axis)
        assert {name for case in chosen for name in str(values_of(case)[axis.value]).split(",")} == set(PARTS[axis])


def test_a_new_part_and_a_new_option_in_use_are_represented_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = representatives(models.CASES, Axis.RESIDUAL)
    option = Option("new_size", 1, "a number")
    monkeypatch.setitem(PARTS[Axis.RESIDUAL], "new", Part(Axis.RESIDUAL, "new", dict, "a part", options=(option,)))
    for name, values in {"newest": {}, "newest_at_two": {"new_size": 2}, "newest_again": {"new_size": 2}}.items():
        monkeypatch.setitem(METHODS, name, Method(name, "", "", "", residual="new", options=values))
    cases = [*models.CASES, "newest", "newest_at_two", "newest_again"]
    assert representatives(cases, Axis.RESIDUAL) == [*before, "newest", "newest_at_two"]
    # An axis that the promise does not read brings nothing in.
    assert representatives(cases, Axis.LAYER_AGGREGATION) == representatives(models.CASES, Axis.LAYER_AGGREGATION)
