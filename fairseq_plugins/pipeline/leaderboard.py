"""Many runs as one table: a row per recipe with all its seeds, the paper's number, and tests against the baseline."""

from __future__ import annotations

import math
import os
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.pipeline.published import PublishedRow, rows_of, rows_reproduced
from fairseq_plugins.pipeline.results import HYPOTHESES, REFERENCES, Run
from fairseq_plugins.pipeline.verdicts import OK, verdict_of
from fairseq_plugins.scoring.metrics import METRICS
from fairseq_plugins.scoring.significance import WELCH, Comparison, compare

AVERAGE, VALID = "average", "valid"
"""The pseudo test set of the mean over all, and the one that is not part of the mean."""
FIRST = "sacreBLEU"
"""The first score of a table, if there is one."""
UPDATES_TO_1_2_BITS = "updates to 1.2 bits per byte"
"""A published quantity that comes from the log of a training, on the validation set."""


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


@dataclass(frozen=True)
class Column:
    """A score on a test set, or its mean over the test sets ``mean_over``."""

    test_set: str
    metric: str
    mean_over: tuple[str, ...] = ()

    @property
    def header(self) -> str:
        """Header of the column."""
        return f"{self.test_set} {self.metric}"


def score_of(run: Run, column: Column) -> float | None:
    """The score of a run; None without one. A mean needs all of its test sets."""
    if column.metric == UPDATES_TO_1_2_BITS:
        return next((float(updates) for updates, loss in sorted(run.log.valid_loss.items()) if loss <= 1.2), None)
    if column.mean_over:
        scores = [score_of(run, Column(test_set, column.metric)) for test_set in column.mean_over]
        known = [score for score in scores if score is not None]
        return statistics.fmean(known) if len(known) == len(scores) else None
    evaluation = run.evaluations.get(column.test_set)
    metric = evaluation.metrics.get(column.metric) if evaluation else None
    return metric.value if metric else None


@dataclass(frozen=True)
class Group:
    """A recipe with all its runs, by seed; ``label`` is its unique name in the table."""

    label: str
    runs: tuple[Run, ...]
    published: tuple[PublishedRow, ...] = ()

    @property
    def first(self) -> Run:
        """The first run, for values that all runs share."""
        return self.runs[0]

    @property
    def layers(self) -> str | None:
        """``encoder-decoder``, or one number for a language model."""
        depths = [self.first.configured("model", f"{stack}_layers") for stack in ("encoder", "decoder")]
        return "-".join(str(depth) for depth in depths if depth is not None) or None

    @property
    def parameters(self) -> int | None:
        """Number of parameters, counted before the training, else from its log."""
        counted = self.first.settings.get("parameters")
        return counted if isinstance(counted, int) else self.first.log.parameters

    @property
    def devices(self) -> str | None:
        """Devices of the trainings, each kind once with its number."""
        counts = Counter(str(name) for run in self.runs for name in run.settings.get("devices") or [])
        of_one = {name: count // len(self.runs) or 1 for name, count in counts.items()}
        return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in of_one.items()) or None

    @property
    def verdict(self) -> str:
        """The outcome that all runs share, else each with the number of its runs."""
        outcomes = [verdict_of(run).outcome for run in self.runs]
        distinct = sorted(set(outcomes), key=lambda outcome: (outcome != OK, outcome))
        if len(distinct) == 1:
            return distinct[0]
        return ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in distinct)

    def number(self, value: Callable[[Run], float | None]) -> Spread | None:
        """The finite values of a number of each run; None if there are none. The verdict shows a loss that is not."""
        numbers = tuple(number for run in self.runs if (number := value(run)) is not None and math.isfinite(number))
        return Spread(numbers) if numbers else None

    @property
    def speed(self) -> float | None:
        """Target tokens per second in training, median over the runs; None before the first log interval."""
        speeds = self.number(lambda run: run.log.median_speed)
        return statistics.median(speeds.values) if speeds else None

    def score(self, column: Column) -> Spread | None:
        """A score of each run that has it."""
        return self.number(lambda run: score_of(run, column))


# --- rows and columns -----------------------------------------------------------------------------------------------


def gather(runs: Sequence[Run]) -> tuple[Group, ...]:
    """Group the runs that differ only in the seed; rows keep the order of the runs."""
    recipes: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        data = run.settings.get("data_fingerprint") or str(run.data)
        recipe = (run.config, _distinctions(run), data) if run.config else (str(run.directory),)
        recipes.setdefault(recipe, []).append(run)
    labels = _labels([members[0] for members in recipes.values()])
    return tuple(
        Group(label, tuple(sorted(members, key=lambda run: run.seed or 0)), tuple(rows_reproduced(members[0])))
        for label, members in zip(labels, recipes.values(), strict=True)
    )


def _distinctions(run: Run) -> tuple[str, ...]:
    """The changes that make a run of a configuration another recipe, as on the command line."""
    return (*run.changes, *([f"PRECISION={run.precision}"] if run.precision else []))


def _labels(firsts: Sequence[Run]) -> list[str]:
    """The name of the configuration with the changes that not all rows share; numbered if that is not unique."""
    # A run without run.json shares nothing; it would put every change into the names of all other rows.
    known = [set(_distinctions(run)) for run in firsts if run.config is not None]
    shared = set.intersection(*known) if known else set()
    changes = [[change for change in _distinctions(run) if change not in shared] for run in firsts]
    names = [run.config or os.path.relpath(run.directory) for run in firsts]
    short = [Path(name).name if run.config else name for run, name in zip(firsts, names, strict=True)]
    labels = [" ".join([name, *own]) for name, own in zip(short, changes, strict=True)]
    if len(set(labels)) == len(labels):
        return labels
    labels = [" ".join([name, *own]) for name, own in zip(names, changes, strict=True)]
    return [
        label if label not in labels[:place] else f"{label} ({labels[:place].count(label) + 1})"
        for place, label in enumerate(labels)
    ]


def score_columns(groups: Sequence[Group], wanted: Sequence[str] = ()) -> tuple[Column, ...]:
    """The scores to show on every test set: ``wanted``, else the default score and those that a paper printed.

    Raises:
        UserError: no run has a wanted score.
    """
    evaluations = [evaluation for group in groups for run in group.runs for evaluation in run.evaluations.values()]
    test_sets = list(dict.fromkeys(evaluation.test_set for evaluation in evaluations))
    present = list(dict.fromkeys(name for evaluation in evaluations for name in evaluation.metrics))
    if unknown := [name for name in wanted if name not in present]:
        raise UserError([unknown_name("score", name, present) for name in unknown])
    printed = list(dict.fromkeys(name for group in groups for row in group.published for name in printed_metrics(row)))
    usual = [FIRST] if FIRST in present else present[:1]
    names = wanted or list(dict.fromkeys([*usual, *(name for name in printed if name in present)]))
    columns = [Column(test_set, name) for test_set in test_sets for name in names]
    averaged = tuple(test_set for test_set in test_sets if test_set != VALID)
    columns += [Column(AVERAGE, name, averaged) for name in names if len(averaged) > 1]
    columns += [Column(VALID, UPDATES_TO_1_2_BITS)] if UPDATES_TO_1_2_BITS in printed else []
    return tuple(column for column in columns if any(group.score(column) for group in groups))


def printed_metrics(row: PublishedRow) -> list[str]:
    """Our names of the scores that a published row prints."""
    named = [metric.name for metric in METRICS.values() if (metric.metric, metric.scorer) == (row.metric, row.scorer)]
    return named or (row.metric.split(" ") if row.metric.startswith("ROUGE") else [row.metric])


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


# --- remarks --------------------------------------------------------------------------------------------------------


def remarks(groups: Sequence[Group]) -> Iterator[str]:
    """One line for everything missing or odd about the runs, and for settings that they should share and do not."""
    for group in groups:
        for run in group.runs:
            verdict = verdict_of(run)
            if verdict.outcome != OK:
                yield f"{run.directory}: {verdict.outcome}: {verdict.reason}"
            yield from run.problems
        for seed, count in Counter(run.seed for run in group.runs).items():
            if count > 1:
                yield f"{group.label}: {count} runs of seed {seed}; they are counted as {count} seeds"
        yield from _departures(group)
    yield from _unlike(groups)


def _departures(group: Group) -> Iterator[str]:
    """A line if the recipe is not the paper's, and one for every average that is not."""
    if not group.published and rows_of(group.first.config or ""):
        differences = " ".join(group.first.changes) or "the published recipe has overrides"
        yield f"{group.label}: differs from the published recipe, so its number is not shown: {differences}"
    printed = {row.average for row in group.published}
    evaluations = [evaluation for run in group.runs for evaluation in run.evaluations.values()]
    for test_set, made in sorted({(scored.test_set, scored.decoding.get("average", "")) for scored in evaluations}):
        if made and printed and made not in printed:
            papers = ", ".join(sorted(printed))
            yield f"{group.label}: {test_set} uses average={made}, the published score {papers}"


def _unlike(groups: Sequence[Group]) -> Iterator[str]:
    """A line for every setting in which translations or scores of one test set differ."""
    labels_by_value: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    evaluations = [(group.label, made) for group in groups for run in group.runs for made in run.evaluations.values()]
    for label, evaluation in evaluations:
        settings = {name: value for name, value in evaluation.decoding.items() if name not in ("updates", "metrics")}
        settings |= {f"signature of {metric.name}": metric.signature for metric in evaluation.metrics.values()}
        for name, value in settings.items():
            by_value = labels_by_value.setdefault((evaluation.test_set, name), {})
            by_value.setdefault(value, {})[label] = None
    for (test_set, name), by_value in labels_by_value.items():
        if len(by_value) > 1:
            values = "; ".join(f"{value} for {', '.join(labels)}" for value, labels in by_value.items())
            yield f"{test_set}: settings differ: {name} is {values}"


# --- significance ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Significance:
    """Tests of all rows against the baseline: on the saved translations, and over the seeds by Welch's test.

    Attributes:
        baseline: label of the row that the others are tested against.
        tests: the tests, each with the name of its test set.
        notes: a line for each comparison that was not possible.
    """

    baseline: str
    tests: tuple[tuple[str, Comparison], ...]
    notes: tuple[str, ...]

    def p(self, label: str, column: Column, *, seeds: bool) -> float | None:
        """p-value of a row in a column, over the seeds or over the sentences; None where it was not tested."""
        for test_set, test in self.tests:
            if (test_set, test.metric, test.system) == (column.test_set, column.metric, label):
                if (test.test == WELCH) is seeds:
                    return test.p
        return None


def compared(groups: Sequence[Group], columns: Sequence[Column], baseline: Group, samples: int) -> Significance:
    """Test every row against the baseline, on the saved translations of each test set.

    Args:
        groups: the rows.
        columns: the scores; only those of plain text are tested.
        baseline: one of the rows.
        samples: resamples of the paired bootstrap.
    """
    tests: list[tuple[str, Comparison]] = []
    notes: dict[str, None] = {}
    metrics = {metric.name: metric for metric in METRICS.values() if metric.paired and metric.reads == "plain"}
    for column in columns:
        if column.metric not in metrics or column.mean_over:
            continue
        outputs, references, problems = _outputs(groups, column.test_set, baseline)
        notes.update(dict.fromkeys(problems))
        if len(outputs) > 1 and baseline.label in outputs:
            own = [run.evaluations[column.test_set] for run in baseline.runs if column.test_set in run.evaluations]
            scores = [evaluation.metrics.get(column.metric) for evaluation in own]
            results = compare(
                outputs,
                [references],
                metric=metrics[column.metric],
                baseline=baseline.label,
                tests=("bootstrap",),
                samples={"bootstrap": samples},
                lower_case=any("case:lc" in score.signature for score in scores if score),
            )
            tests += [(column.test_set, comparison) for comparison in results]
    return Significance(baseline.label, tuple(tests), tuple(notes))


def _outputs(
    groups: Sequence[Group], test_set: str, baseline: Group
) -> tuple[dict[str, list[list[str]]], list[str], list[str]]:
    """Translations of every row, the references that they share, and the reason for each row that is left out."""
    outputs: dict[str, list[list[str]]] = {}
    notes: list[str] = []
    references: list[str] = []
    for group in [baseline, *(group for group in groups if group is not baseline)]:
        for run in group.runs:
            if (evaluation := run.evaluations.get(test_set)) is None:
                continue
            hypotheses, own = (_lines(evaluation.directory / name) for name in (HYPOTHESES, REFERENCES))
            references = references or own
            if why := _not_comparable(hypotheses, own, references):
                notes.append(f"{evaluation.directory}: not compared with {baseline.label}: {why}")
            else:
                outputs.setdefault(group.label, []).append(hypotheses)
    return outputs, references, notes


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError):
        return []


def _not_comparable(hypotheses: Sequence[str], own: Sequence[str], references: Sequence[str]) -> str:
    if not hypotheses or not own:
        return f"{REFERENCES if hypotheses else HYPOTHESES} is missing or not UTF-8"
    if own != references:
        return "its references differ"
    return "" if len(hypotheses) == len(own) else f"{len(hypotheses)} translations for {len(own)} sentences"
