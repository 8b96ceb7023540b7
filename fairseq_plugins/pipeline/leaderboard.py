"""Many runs as one table: one row per recipe with all its seeds, next to the paper's number.

Runs that differ only in the seed are one row.
"""

from __future__ import annotations

import math
import os
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.pipeline.fairseq_log import TrainingLog
from fairseq_plugins.pipeline.outcomes import Verdict
from fairseq_plugins.pipeline.published import PublishedRow, rows_of
from fairseq_plugins.pipeline.recipes import rows_reproduced
from fairseq_plugins.pipeline.run import Evaluation, Run
from fairseq_plugins.pipeline.verdicts import verdict_of
from fairseq_plugins.scoring.metrics import METRICS

AVERAGE, VALID = "average", "valid"
"""The pseudo test set of the mean over all, and the one that is not part of the mean."""
FIRST = "sacreBLEU"
"""The first score of a table, if there is one."""


def _updates_to_1_2_bits(log: TrainingLog) -> float | None:
    return next((float(updates) for updates, loss in sorted(log.valid_loss.items()) if loss <= 1.2), None)


FROM_LOG: Mapping[str, Callable[[TrainingLog], float | None]] = {
    "updates to 1.2 bits per byte": _updates_to_1_2_bits,
}
"""Published quantities that come from the log of a training, on the validation set."""


@dataclass(frozen=True)
class Spread:
    """A number of several runs."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the runs."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the runs (n - 1); None for a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None


def spread(values: Sequence[float | None]) -> Spread | None:
    """The finite values; None if there are none. A loss that is not finite shows in the verdict."""
    known = tuple(value for value in values if value is not None and math.isfinite(value))
    return Spread(known) if known else None


@dataclass(frozen=True)
class Column:
    """A score on a test set."""

    test_set: str
    metric: str

    @property
    def header(self) -> str:
        """Header of the column."""
        return f"{self.test_set} {self.metric}"


@dataclass(frozen=True)
class Member:
    """One run and the verdict on it."""

    run: Run
    verdict: Verdict

    def score(self, column: Column) -> float | None:
        """Its score; None without one. The average needs all test sets."""
        if column.metric in FROM_LOG:
            return FROM_LOG[column.metric](self.run.log)
        if column.test_set == AVERAGE:
            return self._average(column.metric)
        evaluation = self.run.evaluations.get(column.test_set)
        metric = evaluation.metrics.get(column.metric) if evaluation else None
        return metric.value if metric else None

    def _average(self, metric: str) -> float | None:
        sets = [each for name, each in self.run.evaluations.items() if name != VALID]
        found = [each.metrics[metric].value for each in sets if metric in each.metrics]
        return statistics.fmean(found) if found and len(found) == len(sets) else None


@dataclass(frozen=True)
class Group:
    """A recipe with all its runs.

    Attributes:
        label: its unique name in the table.
        members: its runs, by seed.
        published: the published rows.
    """

    label: str
    members: tuple[Member, ...]
    published: tuple[PublishedRow, ...] = ()

    @property
    def first(self) -> Run:
        """The first run, for values that all runs share."""
        return self.members[0].run

    @property
    def layers(self) -> str | None:
        """``encoder-decoder``, or one number for a language model."""
        depths = [self.first.configured("model", f"{stack}_layers") for stack in ("encoder", "decoder")]
        known = [str(depth) for depth in depths if depth is not None]
        return "-".join(known) or None

    @property
    def parameters(self) -> int | None:
        """Number of parameters, counted before the training, else from its log."""
        counted = self.first.settings.get("parameters")
        return counted if isinstance(counted, int) else self.first.log.parameters

    @property
    def devices(self) -> str | None:
        """Devices of the trainings, each kind once with its number."""
        named = [str(name) for member in self.members for name in member.run.settings.get("devices") or []]
        counts = Counter(named)
        each = {name: count // len(self.members) or 1 for name, count in counts.items()}
        return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in each.items()) or None

    def number(self, value: Callable[[Run], float | None]) -> Spread | None:
        """A number of each run."""
        return spread([value(member.run) for member in self.members])

    def score(self, column: Column) -> Spread | None:
        """A score of each run that has it."""
        return spread([member.score(column) for member in self.members])


def gather(runs: Sequence[Run]) -> tuple[Group, ...]:
    """Group the runs that differ only in the seed; rows keep the order of the runs."""
    found: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        found.setdefault(_recipe(run), []).append(run)
    labels = _labels(list(found.values()))
    return tuple(
        Group(label, tuple(Member(run, verdict_of(run)) for run in _by_seed(members)), _printed(members))
        for label, members in zip(labels, found.values(), strict=True)
    )


def _printed(members: Sequence[Run]) -> tuple[PublishedRow, ...]:
    return tuple(rows_reproduced(members[0]))


def _recipe(run: Run) -> tuple[Any, ...]:
    if run.config is None:
        return (str(run.directory),)
    return run.config, _distinctions(run), run.settings.get("data_fingerprint") or str(run.data)


def _distinctions(run: Run) -> tuple[str, ...]:
    """The changes that make a run of a configuration another recipe, as on the command line."""
    return (*run.changes, *([f"PRECISION={run.precision}"] if run.precision else []))


def _by_seed(runs: Sequence[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: (run.seed is None, run.seed or 0))


def _labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """The name of the configuration with the changes that not all rows share; numbered if that is not unique."""
    firsts = [members[0] for members in groups]
    # A run without run.json shares nothing; it would put every change into the names of all other rows.
    known = [set(_distinctions(run)) for run in firsts if run.config is not None]
    shared = set.intersection(*known) if known else set()
    short, long = [], []
    for run in firsts:
        changes = [change for change in _distinctions(run) if change not in shared]
        name = run.config or os.path.relpath(run.directory)
        long.append(" ".join([name, *changes]))
        short.append(" ".join([Path(name).name if run.config else name, *changes]))
    return short if len(set(short)) == len(short) else _numbered(long)


def _numbered(labels: Sequence[str]) -> list[str]:
    seen: Counter[str] = Counter()
    numbered = []
    for label in labels:
        seen[label] += 1
        numbered.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return numbered


def score_columns(groups: Sequence[Group], wanted: Sequence[str] = ()) -> tuple[Column, ...]:
    """The scores to show on every test set: ``wanted``, else the default score and those that a paper printed.

    Raises:
        UserError: no run has a wanted score.
    """
    runs = [member.run for group in groups for member in group.members]
    test_sets = list(dict.fromkeys(name for run in runs for name in run.evaluations))
    present = list(
        dict.fromkeys(name for run in runs for evaluation in run.evaluations.values() for name in evaluation.metrics)
    )
    printed = [name for group in groups for row in group.published for name in printed_metrics(row)]
    if unknown := [name for name in wanted if name not in present]:
        raise UserError([unknown_name("score", name, present) for name in unknown])
    usual = [FIRST] if FIRST in present else present[:1]
    names = list(dict.fromkeys([*usual, *(name for name in printed if name in present)]))
    columns = [Column(test_set, name) for test_set in test_sets for name in wanted or names]
    if len(set(test_sets) - {VALID}) > 1:
        columns += [Column(AVERAGE, name) for name in wanted or names]
    columns += [Column(VALID, name) for name in dict.fromkeys(printed) if name in FROM_LOG]
    return tuple(column for column in columns if any(group.score(column) for group in groups))


def printed_metrics(row: PublishedRow) -> list[str]:
    """Our names of the scores that a published row prints."""
    named = [metric.name for metric in METRICS.values() if (metric.metric, metric.scorer) == (row.metric, row.scorer)]
    if named:
        return named
    return row.metric.split(" ") if row.metric.startswith("ROUGE") else [row.metric]


def named_baseline(groups: Sequence[Group], name: str = "") -> Group:
    """The row that the others are tested against: by label or configuration; default: the first.

    Raises:
        UserError: there is no such row.
    """
    if not name:
        return groups[0]
    wanted = name.removesuffix(".yaml")
    for group in groups:
        if wanted in (group.label, group.first.config, Path(group.first.config or "").name):
            return group
    raise UserError(unknown_name("--baseline", name, [group.label for group in groups]))


def remarks(groups: Sequence[Group]) -> Iterator[str]:
    """One line for everything missing or odd about the runs."""
    test_sets = [{name for member in group.members for name in member.run.evaluations} for group in groups]
    every = set().union(*test_sets)
    for group, own in zip(groups, test_sets, strict=True):
        for member in group.members:
            if member.verdict.outcome != "ok":
                yield f"{member.run.directory}: {member.verdict.outcome}: {member.verdict.reason}"
            yield from member.run.problems
        seeds = Counter(member.run.seed for member in group.members)
        for seed, count in seeds.items():
            if count > 1:
                yield f"{group.label}: {count} runs of seed {seed}; they are counted as {count} seeds"
        if not group.published and rows_of(group.first.config or ""):
            yield f"{group.label}: differs from the published recipe, so its number is not shown: {_differences(group)}"
        yield from _other_averages(group)
        if own and own != every:
            yield f"{group.label}: not evaluated on {', '.join(sorted(every - own))}"


def _differences(group: Group) -> str:
    return " ".join(group.first.changes) or "the published recipe has overrides"


def _other_averages(group: Group) -> Iterator[str]:
    """A line for every average that is not the paper's."""
    printed = {row.average for row in group.published}
    evaluations = [each for member in group.members for each in member.run.evaluations.values()]
    found = {(each.test_set, made) for each in evaluations if (made := each.decoding.get("average"))}
    for test_set, made in sorted(found):
        if printed and made not in printed:
            papers = ", ".join(sorted(printed))
            yield f"{group.label}: {test_set} uses average={made}, the published score {papers}"


def unlike(groups: Sequence[Group]) -> Iterator[str]:
    """A line for every setting in which translations or scores of one test set differ."""
    made: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for group in groups:
        for member in group.members:
            for evaluation in member.run.evaluations.values():
                for name, value in _made_with(evaluation):
                    by_value = made.setdefault((evaluation.test_set, name), {})
                    by_value.setdefault(value, {})[group.label] = None
    for (test_set, name), by_value in made.items():
        if len(by_value) > 1:
            each = [f"{value} for {', '.join(labels)}" for value, labels in by_value.items()]
            yield f"{test_set}: settings differ: {name} is {'; '.join(each)}"


def _made_with(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """The settings of an evaluation that should be the same for all; the number of updates may differ."""
    yield from ((name, value) for name, value in evaluation.decoding.items() if name not in ("updates", "metrics"))
    yield from ((f"signature of {metric.name}", metric.signature) for metric in evaluation.metrics.values())
