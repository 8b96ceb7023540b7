"""Test whether one system is better than another: paired tests over the sentences, and Welch's t-test over seeds.

sacreBLEU makes the paired bootstrap (Koehn 2004) and the paired approximate randomisation (Riezler and Maxwell 2005).
One run per system is not enough to call a gain real (Clark et al. 2011).

With several runs the paired tests are made for each pair of runs, the k-th of one system with the k-th of the other
(all pairs if one has more). The largest p-value counts, or 1 if two pairs contradict each other. The outputs of all
runs are *not* concatenated: each test sentence would count once for each seed, and the p-values come out too small.

No p-value is corrected for the number of systems compared.
"""

import itertools
import statistics
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sacrebleu.significance import PairedTest

from fairseq_plugins.tools.scoring.metrics import METRICS, Metric
from fairseq_plugins.tools.scoring.text import Forms, Outputs, Text

T = TypeVar("T")

TESTS: Mapping[str, tuple[str, str, int]] = {
    "bootstrap": ("paired bootstrap", "bs", 1000),
    "randomisation": ("approximate randomisation", "ar", 10000),
}
"""sacreBLEU's tests: name in a table, name in sacreBLEU, and default number of samples."""
WELCH = "Welch's t-test over runs"

FEWEST_SENTENCES = 100
"""Resampling fewer sentences is unreliable: the bootstrap calls almost any difference real."""


@dataclass(frozen=True)
class Comparison:
    """One test of one system against the baseline.

    Args:
        system, baseline, metric: their names.
        test: its name.
        samples: resamples or trials; 0 for Welch's test.
        difference: mean of the system minus mean of the baseline, in points.
        p: the largest of ``p_values``, or 1 if one pair of runs is better and another worse; None if there is none
            (Welch's test of runs that are all equal).
        p_values: one for each pair of runs; 1 if both have the same score.
        signature: sacreBLEU's, with number of samples and seed.
    """

    system: str
    baseline: str
    metric: str
    test: str
    samples: int
    difference: float
    p: float | None
    p_values: tuple[float, ...]
    signature: str


def compare(
    systems: Mapping[str, Outputs],
    references: Sequence[Sequence[str]],
    *,
    metric: Metric = METRICS["sacrebleu"],
    baseline: str | None = None,
    tests: Sequence[str] = tuple(TESTS),
    samples: Mapping[str, int] | None = None,
    lower_case: bool = False,
) -> tuple[Comparison, ...]:
    """Test every system against ``baseline`` (by default the first); SACREBLEU_SEED of the environment is the seed.

    Args:
        systems: outputs in the form of text that ``metric`` reads; a list of lists for several runs.
        references: one list for each, in the same form.
        metric: one that sacreBLEU computes.
        baseline: name of one of the systems.
        tests: keys of :data:`TESTS`. Welch's test is added if both systems have several runs.
        samples: resamples or trials by test; by default sacreBLEU's 1000 and 10000.
        lower_case: lower-case both sides first.

    Raises:
        UserError: unequal counts.
    """
    assert metric.sacre is not None
    text = Forms(Text.of(systems, references)).plain
    first = next(iter(systems)) if baseline is None else baseline
    scorer = metric.sacre(lowercase=lower_case)
    return tuple(
        comparison
        for name in systems
        if name != first
        for comparison in _compare_two(text, name, first, metric.name, scorer, tests, samples or {})
    )


def _compare_two(
    text: Text, name: str, baseline: str, metric: str, scorer: Any, tests: Sequence[str], samples: Mapping[str, int]
) -> Iterator[Comparison]:
    runs, base = text.systems[name], text.systems[baseline]
    references = [list(reference) for reference in text.references]
    ours, theirs = ([float(scorer.corpus_score(run, references).score) for run in side] for side in (runs, base))
    difference = statistics.fmean(ours) - statistics.fmean(theirs)
    agree = len({our > their for their, our in _pairs(theirs, ours) if our != their}) <= 1
    for test in tests:
        title, sacre, usual = TESTS[test]
        count = samples.get(test, usual)
        p_values: list[float] = []
        for first, second in _pairs(base, runs):
            pair = PairedTest([("baseline", first), ("system", second)], {"": scorer}, references, sacre, count)
            signatures, results = pair()
            ((key, signature),) = signatures.items()
            scored: Any = results[key]
            # sacreBLEU counts samples beyond the observed difference, so it reports p = 1 / (n + 1) for two outputs
            # that its score does not tell apart.
            p_values.append(1.0 if scored[0].score == scored[1].score else float(scored[1].p_value))
        largest = max(p_values) if agree else 1.0
        yield Comparison(name, baseline, metric, title, count, difference, largest, tuple(p_values), str(signature))
    if len(runs) > 1 and len(base) > 1:
        p = welch(ours, theirs)
        yield Comparison(name, baseline, metric, WELCH, 0, difference, p, () if p is None else (p,), "")


def _pairs(base: Sequence[T], runs: Sequence[T]) -> list[tuple[T, T]]:
    return list(zip(base, runs, strict=True)) if len(base) == len(runs) else list(itertools.product(base, runs))


def welch(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Return the two-sided p-value of Welch's t-test; None if all runs are equal, so that nothing varies."""
    if statistics.pvariance(ours) == statistics.pvariance(theirs) == 0:
        return None
    from scipy.stats import ttest_ind

    with warnings.catch_warnings():
        # scipy warns if all runs of one system are equal, which is fine as long as the other's differ.
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)
        return float(ttest_ind(ours, theirs, equal_var=False).pvalue)
