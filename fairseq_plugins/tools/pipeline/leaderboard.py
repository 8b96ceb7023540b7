"""Many runs as one table: a row per recipe with all its seeds, the paper's number, and tests against the baseline."""

import itertools
import math
import os
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_plugins.checkpoints.provenance import listed, phrases
from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import read_lines
from fairseq_plugins.tools.observe.recorder.entries import SUFFIX
from fairseq_plugins.tools.pipeline.fairseq_log import TrainingLog
from fairseq_plugins.tools.pipeline.published import (
    WITHOUT_EFFECT,
    Difference,
    PublishedRow,
    differences,
    published_rows,
    rows_of,
)
from fairseq_plugins.tools.pipeline.results import AVERAGE_WARNING, EVALUATION, HYPOTHESES, REFERENCES, Evaluation, Run
from fairseq_plugins.tools.pipeline.resume import flat
from fairseq_plugins.tools.pipeline.verdicts import OK, verdict_of
from fairseq_plugins.tools.scoring.metrics import METRICS
from fairseq_plugins.tools.scoring.significance import Comparison, compare

AVERAGE, VALID = "average", "valid"
"""The pseudo test set of the mean over all, and the one that is not part of the mean."""
OF_A_SEED = {"common.seed", "task.seed", "task.data", "checkpoint.save_dir", "common.cpu", "common.cuda_graphs"}
"""Settings in which the seeds of a recipe may differ, besides those without effect."""
NAMED = 3
"""Maximum number of settings in a remark."""
FIRST = "sacreBLEU"
"""The first score of a table, if there is one."""
FROM_LOG: Mapping[str, Callable[[TrainingLog], float | None]] = {
    "updates to 1.2 bits per byte": lambda log: next(
        (float(updates) for updates, loss in sorted(log.valid_loss.items()) if loss <= 1.2), None
    ),
    "lowest negative log-likelihood": lambda log: min(filter(math.isfinite, log.valid_loss.values()), default=None),
}
"""Published quantities that come from the log of a training, on the validation set."""


@dataclass(frozen=True)
class Column:
    """A score on a test set, or its mean over the test sets ``mean_over``."""

    test_set: str
    metric: str
    mean_over: tuple[str, ...] = ()

    def score(self, run: Run) -> float | None:
        """The score of a run; None without one. A mean needs all of its test sets."""
        if self.metric in FROM_LOG:
            return FROM_LOG[self.metric](run.log)
        scores = [run.score(test_set, self.metric) for test_set in self.mean_over or (self.test_set,)]
        known = [score for score in scores if score is not None]
        return statistics.fmean(known) if len(known) == len(scores) else None


@dataclass(frozen=True)
class Group:
    """A recipe with all its runs, by seed.

    Attributes:
        label: its unique name in the table.
        runs: the seeds.
        published: the rows of its configuration, each with the differences between the runs and its recipe.
    """

    label: str
    runs: tuple[Run, ...]
    published: Mapping[PublishedRow, tuple[Difference, ...]] = field(default_factory=dict)

    @property
    def reproduced(self) -> list[PublishedRow]:
        """The rows whose recipe the runs are."""
        return [row for row, differing in self.published.items() if not differing]

    @property
    def departures(self) -> tuple[Difference, ...]:
        """Differences between the runs and the nearest published recipe; empty without a difference or a row."""
        return min(self.published.values(), key=len, default=())

    @property
    def layers(self) -> str | None:
        """``encoder-decoder``, or one number for a language model."""
        depths = [self.runs[0].configured("model", f"{stack}_layers") for stack in ("encoder", "decoder")]
        return "-".join(str(depth) for depth in depths if depth is not None) or None

    @property
    def devices(self) -> str | None:
        """Devices of the trainings, each kind once with its number."""
        counts = Counter(str(name) for run in self.runs for name in run.settings.get("devices") or [])
        of_one = {name: count // len(self.runs) or 1 for name, count in counts.items()}
        return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in of_one.items()) or None

    @property
    def verdict(self) -> str:
        """The outcome that all runs share, else each with the number of its runs."""
        counts = Counter(verdict_of(run).outcome for run in self.runs)
        outcomes = sorted(counts, key=lambda outcome: (outcome != OK, outcome))
        return outcomes[0] if len(outcomes) == 1 else ", ".join(f"{counts[name]} {name}" for name in outcomes)

    def evaluations(self, test_set: str = "") -> list[Evaluation]:
        """The evaluations of its runs, on one test set or on all."""
        every = [evaluation for run in self.runs for evaluation in run.evaluations.values()]
        return [evaluation for evaluation in every if test_set in ("", evaluation.test_set)]

    def values(self, number: Callable[[Run], float | None]) -> list[float]:
        """The finite values of a number of each run. The verdict shows a loss that is not."""
        return [value for run in self.runs if (value := number(run)) is not None and math.isfinite(value)]


# --- rows and columns -----------------------------------------------------------------------------------------------


def gather(runs: Sequence[Run]) -> tuple[Group, ...]:
    """Group the runs that differ only in the seed; rows keep the order of the runs."""
    recipes: list[list[Run]] = []
    for run in runs:
        alike = (members for members in recipes if _named_alike(members[0], run) and not unlike(members[0], run))
        if (members := next(alike, None)) is None:
            recipes.append(members := [])
        members.append(run)
    labels = _labels([members[0] for members in recipes])
    return tuple(
        Group(
            label,
            tuple(sorted(members, key=lambda run: run.seed or 0)),
            {row: differences(members, row) for row in published_rows(members[0]) or rows_of(members[0].config or "")},
        )
        for label, members in zip(labels, recipes, strict=True)
    )


def _named_alike(first: Run, second: Run) -> bool:
    """Whether two runs have the same configuration file and changes, and were trained on the same data."""
    data = [run.settings.get("data_content") or str(run.data) for run in (first, second)]
    same = (first.config, _distinctions(first), data[0]) == (second.config, _distinctions(second), data[1])
    return same and first.config is not None


def unlike(first: Run, second: Run) -> list[str]:
    """Settings in which ``first`` is another recipe than ``second``, as ``KEY: VALUE, was VALUE``.

    A file may have been edited between the two. Settings that only one of them has come from another version.
    """
    before, after = (
        {name: str(value).removesuffix(SUFFIX) for name, value in flat(run.settings.get("configuration") or {})}
        for run in (second, first)
    )
    names = {
        name
        for name in before.keys() & after.keys() - OF_A_SEED
        if not all(WITHOUT_EFFECT.match(f"{name}={each[name]}") for each in (before, after))
    }
    return phrases((name, before[name], after[name]) for name in sorted(names))


def _distinctions(run: Run) -> tuple[str, ...]:
    """The changes that make a run of a configuration another recipe, as on the command line."""
    precision = run.settings.get("precision")
    return (*run.changes, *([f"PRECISION={precision}"] if precision else []))


def _labels(firsts: Sequence[Run]) -> list[str]:
    """The name of the configuration, with its corpus or else the directory if needed, and the changes not shared."""
    # A run without run.json shares nothing; it would put every change into the names of all other rows.
    known = [set(_distinctions(run)) for run in firsts if run.config is not None]
    shared = set.intersection(*known) if known else set()
    directories = [os.path.relpath(run.directory) for run in firsts]
    configs = [run.config or directory for run, directory in zip(firsts, directories, strict=True)]
    short = [Path(name).name if run.config else name for run, name in zip(firsts, configs, strict=True)]
    labels: list[str] = []
    for names in (short, configs, directories):
        changes = [[change for change in _distinctions(run) if change not in shared] for run in firsts]
        labels = [" ".join([name, *own]) for name, own in zip(names, changes, strict=True)]
        if len(set(labels)) == len(labels):
            break
    return labels


def score_columns(groups: Sequence[Group]) -> tuple[Column, ...]:
    """The scores to show on every test set: the default score, and those that a paper printed."""
    evaluations = [evaluation for group in groups for evaluation in group.evaluations()]
    test_sets = list(dict.fromkeys(evaluation.test_set for evaluation in evaluations))
    present = list(dict.fromkeys(name for evaluation in evaluations for name in evaluation.metrics))
    printed = []
    for row in (row for group in groups for row in group.published):
        named = [score.name for score in METRICS.values() if (score.metric, score.scorer) == (row.metric, row.scorer)]
        printed += named or (row.metric.split(" ") if row.metric.startswith("ROUGE") else [row.metric])
    usual = [FIRST] if FIRST in present else present[:1]
    names = list(dict.fromkeys([*usual, *(name for name in printed if name in present)]))
    columns = [Column(test_set, name) for test_set in test_sets for name in names]
    # A paper's mean is over its own sets, although others may be evaluated.
    means = {row.test for group in groups for row in group.published if len(row.test) > 1}
    averaged = tuple(test_set for test_set in test_sets if test_set != VALID)
    averaged = next((sets for sets in means if len(means) == 1 and set(sets) <= {*averaged}), averaged)
    columns += [Column(AVERAGE, name, averaged) for name in names if len(averaged) > 1]
    columns += [Column(VALID, metric) for metric in FROM_LOG if metric in printed]
    return tuple(column for column in columns if any(group.values(column.score) for group in groups))


# --- remarks --------------------------------------------------------------------------------------------------------


def remarks(groups: Sequence[Group]) -> Iterator[str]:
    """One line for everything missing or odd about the runs, and for settings that they should share and do not."""
    for group in groups:
        for run in group.runs:
            verdict = verdict_of(run)
            if verdict.outcome != OK:
                yield f"{run.directory}: {verdict.outcome}: {verdict.reason}"
            yield from run.problems
            warning = run.directory / EVALUATION / AVERAGE_WARNING
            if warning.is_file():
                yield f"{run.directory}: {' '.join(lines_of(warning))}"
        for seed, count in Counter(run.seed for run in group.runs).items():
            if count > 1:
                yield f"{group.label}: {count} runs of seed {seed}; they are counted as {count} seeds"
        if group.departures:
            differing = "; ".join(difference.full for difference in group.departures)
            yield f"{group.label}: differs from the published recipe, so its number is not shown: {differing}"
    yield from _edited(groups)
    yield from _unlike(groups)


def _edited(groups: Sequence[Group]) -> Iterator[str]:
    """A line for every two rows whose configuration has one name but other settings."""
    for first, second in itertools.combinations(groups, 2):
        if _named_alike(first.runs[0], second.runs[0]):
            changed = unlike(second.runs[0], first.runs[0])
            alike = f"{second.label}: not a seed of {first.label}, although the file has the same name"
            yield f"{alike}: {listed(changed, NAMED)}"


def _unlike(groups: Sequence[Group]) -> Iterator[str]:
    """A line for every setting in which translations or scores of one test set differ."""
    labels_by_value: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for label, evaluation in [(group.label, made) for group in groups for made in group.evaluations()]:
        settings = {name: value for name, value in evaluation.decoding.items() if name not in ("updates", "metrics")}
        settings |= {f"signature of {name}": score.get("signature") or "" for name, score in evaluation.metrics.items()}
        for name, value in settings.items():
            by_value = labels_by_value.setdefault((evaluation.test_set, name), {})
            by_value.setdefault(value, {})[label] = None
    for (test_set, name), by_value in labels_by_value.items():
        if len(by_value) > 1:
            values = "; ".join(f"{value} for {', '.join(labels)}" for value, labels in by_value.items())
            yield f"{test_set}: settings differ: {name} is {values}"


# --- significance ---------------------------------------------------------------------------------------------------


def compared(
    groups: Sequence[Group], columns: Sequence[Column], baseline: Group
) -> tuple[list[tuple[str, Comparison]], list[str]]:
    """Test every row against the baseline: on the saved translations, and over the seeds by Welch's test.

    Only scores of plain text are tested. Returns the tests, each with the name of its test set, and a line for each
    evaluation that cannot be compared.
    """
    tests: list[tuple[str, Comparison]] = []
    notes: list[str] = []
    metrics = {metric.name: metric for metric in METRICS.values() if metric.sacre and metric.reads == "plain"}
    for column in columns:
        if column.metric not in metrics or column.mean_over:
            continue
        outputs: dict[str, list[list[str]]] = {}
        references: list[str] = []
        lower_case = False
        for group in [baseline, *(group for group in groups if group is not baseline)]:
            for evaluation in group.evaluations(column.test_set):
                hypotheses, own = (lines_of(evaluation.directory / name) for name in (HYPOTHESES, REFERENCES))
                references = references or own
                if not own or own != references or len(hypotheses) != len(own):
                    why = "its references differ" if own and own != references else "a file or a sentence is missing"
                    notes.append(f"{evaluation.directory}: not compared with {baseline.label}: {why}")
                    continue
                outputs.setdefault(group.label, []).append(hypotheses)
                if group is baseline and column.metric in evaluation.metrics:
                    lower_case |= "case:lc" in (evaluation.metrics[column.metric].get("signature") or "")
        if len(outputs) > 1 and baseline.label in outputs:
            metric, tested = metrics[column.metric], ("bootstrap",)
            results = compare(
                outputs, [references], metric=metric, baseline=baseline.label, tests=tested, lower_case=lower_case
            )
            tests += [(column.test_set, comparison) for comparison in results]
    return tests, list(dict.fromkeys(notes))


def lines_of(path: Path) -> list[str]:
    """The lines of a translation; none if it cannot be read."""
    try:
        return list(read_lines(path))
    except UserError:
        return []
