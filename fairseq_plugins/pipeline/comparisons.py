"""Significance of a leaderboard's differences: paired tests on the translations, Welch's test over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.pipeline.leaderboard import AVERAGE, Column, Group
from fairseq_plugins.pipeline.run import HYPOTHESES, REFERENCES
from fairseq_plugins.scoring.metrics import METRICS
from fairseq_plugins.scoring.significance import WELCH, Comparison, compare


@dataclass(frozen=True)
class Comparisons:
    """Tests of all rows against the baseline.

    Attributes:
        baseline: label of the row that the others are tested against.
        tests: by test set.
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


def compared(groups: Sequence[Group], columns: Sequence[Column], baseline: Group, samples: int) -> Comparisons:
    """Test every row against the baseline, on the saved translations of each test set.

    Args:
        groups: the rows.
        columns: only those of plain-text scores are tested.
        baseline: one of the rows.
        samples: resamples of the paired bootstrap.
    """
    tests: list[tuple[str, Comparison]] = []
    notes: dict[str, None] = {}
    metrics = {metric.name: metric for metric in METRICS.values() if metric.paired and metric.reads == "plain"}
    for column in columns:
        if column.metric not in metrics or column.test_set == AVERAGE:
            continue
        outputs, references, problems = _outputs(groups, column.test_set, baseline)
        notes.update(dict.fromkeys(problems))
        if len(outputs) > 1 and baseline.label in outputs:
            results = compare(
                outputs,
                [references],
                metric=metrics[column.metric],
                baseline=baseline.label,
                tests=("bootstrap",),
                samples={"bootstrap": samples},
                lower_case=_lower_cased(baseline, column),
            )
            tests += [(column.test_set, comparison) for comparison in results]
    return Comparisons(baseline.label, tuple(tests), tuple(notes))


def _outputs(
    groups: Sequence[Group], test_set: str, baseline: Group
) -> tuple[dict[str, list[list[str]]], list[str], list[str]]:
    """Translations of every row, the references that they share, and the reason for each row that is left out."""
    outputs: dict[str, list[list[str]]] = {}
    notes: list[str] = []
    references: list[str] = []
    for group in [baseline, *(group for group in groups if group is not baseline)]:
        for member in group.members:
            evaluation = member.run.evaluations.get(test_set)
            if evaluation is None:
                continue
            directory = evaluation.directory
            hypotheses, own = _lines(directory / HYPOTHESES), _lines(directory / REFERENCES)
            references = references or own
            if why := _not_comparable(hypotheses, own, references):
                notes.append(f"{directory}: not compared with {baseline.label}: {why}")
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


def _lower_cased(group: Group, column: Column) -> bool:
    """Whether the signature says that the score in ``column`` is lower-cased."""
    evaluations = [member.run.evaluations.get(column.test_set) for member in group.members]
    metrics = [evaluation.metrics.get(column.metric) for evaluation in evaluations if evaluation]
    return any("case:lc" in metric.signature for metric in metrics if metric)
