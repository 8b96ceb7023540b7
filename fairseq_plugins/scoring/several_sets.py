"""Several test sets and their mean, as in the tables of B2T (newstest2010 to newstest2016).

The mean is the plain mean of the test sets' scores, whatever their sizes. With several runs it is computed for each run
first; mean and deviation are then over the runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairseq_plugins.errors import UserError
from fairseq_plugins.scoring.corpus_metric import Value
from fairseq_plugins.scoring.scores import SCHEMA, Scores, System, SystemScore, made_by


@dataclass(frozen=True)
class SetScores:
    """The scores of the same systems on several test sets, by name of the test set, and their mean."""

    sets: Mapping[str, Scores]
    average: tuple[System, ...]

    def as_dict(self) -> dict[str, Any]:
        """``schema`` and ``made_by``; ``test_sets``: a list of what a single test set stores, with its ``name``;
        ``average``: a list of systems, each metric with ``name``, ``value``, ``values`` and ``deviation``.
        """  # noqa: D205
        kept = ("name", "metric", "scorer", "value", "values", "deviation", "higher_is_better")
        average = [
            {
                "name": system.name,
                "runs": system.runs,
                "metrics": [{key: score.as_dict()[key] for key in kept} for score in system.scores.values()],
            }
            for system in self.average
        ]
        sets = [{"name": name, **scores.as_dict()} for name, scores in self.sets.items()]
        return {"schema": SCHEMA, "made_by": made_by(), "test_sets": sets, "average": average}


def average_over(sets: Mapping[str, Scores]) -> SetScores:
    """Combine the scores on several test sets.

    Raises:
        UserError: the test sets do not have the same systems, runs and metrics.
    """
    first_name, first = next(iter(sets.items()))
    for name, scores in sets.items():
        if _shape(scores) != _shape(first):
            raise UserError(f"test set {name} has other systems, runs or scores than {first_name}: no mean over them")
    average = tuple(
        System(
            system.name,
            {
                name: _mean(score, [one.systems[index].scores[name] for one in sets.values()])
                for name, score in system.scores.items()
            },
        )
        for index, system in enumerate(first.systems)
    )
    return SetScores(sets, average)


def _shape(scores: Scores) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(system.name, system.runs, tuple(system.scores)) for system in scores.systems]


def _mean(score: SystemScore, over_sets: list[SystemScore]) -> SystemScore:
    runs = zip(*(one.values for one in over_sets), strict=True)
    values = tuple(Value(statistics.fmean(value.value for value in run), "") for run in runs)
    return replace(score, values=values)
