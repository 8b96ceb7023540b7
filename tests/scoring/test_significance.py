"""Paired tests where the answer is known, and how several runs of one system are treated."""

import math
import statistics
from typing import Any

import pytest

from fairseq_plugins.tools.scoring import significance
from fairseq_plugins.tools.scoring.metrics import METRICS, value_of
from fairseq_plugins.tools.scoring.significance import WELCH, compare
from tests.scoring.made_up import dropped, swapped

REFERENCE = [f"sentence {number} says that the {number % 7} cats sat on mat {number % 11}" for number in range(120)]
LIKE, ALIKE = dropped(REFERENCE, 9), dropped(REFERENCE, 9, start=4)
GOOD, FAIR, BAD = swapped(REFERENCE, 6), swapped(REFERENCE, 2), dropped(REFERENCE, 3)
FEW = {"bootstrap": 99, "randomisation": 199}


def by_test(systems: dict[str, Any], **options: Any) -> dict[tuple[str, str], significance.Comparison]:
    found = compare(systems, [REFERENCE], samples=FEW, **options)
    return {(one.system, one.test): one for one in found}


def test_a_system_that_is_better_in_every_sample() -> None:
    """The least p-value that n samples can show is 1 / (n + 1)."""
    found = by_test({"bad": BAD, "good": GOOD})
    assert found["good", "paired bootstrap"].p == pytest.approx(1 / 100)
    assert found["good", "approximate randomisation"].p == pytest.approx(1 / 200)
    scores = [value_of(METRICS["sacrebleu"], text, [REFERENCE]).value for text in (BAD, GOOD)]
    assert [one.difference for one in found.values()] == [pytest.approx(scores[1] - scores[0])] * 2
    # The same text, and what is the same to a score that ignores case.
    for other, lower_case in ((list(FAIR), False), ([sentence.upper() for sentence in FAIR], True)):
        same = by_test({"one": FAIR, "other": other}, lower_case=lower_case)
        assert {(one.p, one.difference) for one in same.values()} == {(1.0, 0.0)}


def test_the_largest_p_value_over_the_pairs_of_runs_counts() -> None:
    base, runs = [BAD, LIKE], [GOOD, ALIKE]
    found = by_test({"base": base, "system": runs})
    for test in ("paired bootstrap", "approximate randomisation"):
        alone = [by_test({"a": one, "b": other})["b", test].p for one, other in zip(base, runs, strict=True)]
        assert list(found["system", test].p_values) == alone
        assert found["system", test].p == max(alone)
        assert alone[0] < alone[1]


def test_runs_that_contradict_each_other_show_nothing() -> None:
    """Each pair alone is as sure as can be, but of the opposite."""
    found = by_test({"base": [BAD, GOOD], "system": [GOOD, BAD]})
    assert found["system", "paired bootstrap"].p_values == (pytest.approx(1 / 100),) * 2
    assert found["system", "approximate randomisation"].p_values == (pytest.approx(1 / 200),) * 2
    assert {one.p for (_, test), one in found.items() if test != WELCH} == {1.0}


def test_all_pairs_where_one_system_has_more_runs() -> None:
    found = by_test({"base": [BAD, FAIR], "system": [GOOD, FAIR, GOOD]}, tests=["bootstrap"])
    assert len(found["system", "paired bootstrap"].p_values) == 6
    assert found["system", "paired bootstrap"].p == 1.0  # FAIR against itself


def test_welch_by_hand() -> None:
    """With three runs each and equal variances there are 4 degrees of freedom, where the distribution is closed; with
    two runs each, of which one system's are equal, there is 1: Cauchy's distribution.
    """  # noqa: D205
    t = (11.0 - 14.0) / math.sqrt(1 / 3 + 1 / 3)
    u = 1 + t * t / 4
    upper = 0.5 - 0.375 * abs(t) / math.sqrt(u) * (1 - t * t / u / 12)
    assert significance.welch([10.0, 11.0, 12.0], [13.0, 14.0, 15.0]) == pytest.approx(2 * upper)
    assert significance.welch([10.0, 12.0], [15.0, 15.0]) == pytest.approx(1 - 2 / math.pi * math.atan(4))


def test_welch_is_made_where_both_have_runs() -> None:
    assert ("b", WELCH) not in by_test({"a": [BAD, FAIR], "b": GOOD}, tests=["bootstrap"])
    found = by_test({"a": [BAD, FAIR], "b": [GOOD, FAIR]}, tests=["bootstrap"])["b", WELCH]
    sides = ([GOOD, FAIR], [BAD, FAIR])
    runs = [[value_of(METRICS["sacrebleu"], text, [REFERENCE]).value for text in side] for side in sides]
    assert found.p == significance.welch(*runs)
    assert found.difference == pytest.approx(statistics.fmean(runs[0]) - statistics.fmean(runs[1]))
    none = by_test({"a": [BAD, BAD], "b": [GOOD, GOOD]}, tests=["bootstrap"])["b", WELCH]
    assert (none.p, none.p_values) == (None, ())


def test_the_same_numbers_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    systems = {"a": LIKE, "b": ALIKE}
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    first = by_test(systems)
    assert by_test(systems) == first
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert by_test(systems) != first
    assert "seed:7" in by_test(systems)["b", "paired bootstrap"].signature
