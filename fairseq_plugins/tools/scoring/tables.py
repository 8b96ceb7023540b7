"""Scores as text for a terminal, or as JSON."""

import json
from collections.abc import Iterator, Sequence

from fairseq_plugins.tables import ABSENT, number, tabulated
from fairseq_plugins.tools.scoring.scores import Scores, made_by
from fairseq_plugins.tools.scoring.significance import Comparison


def as_text(scores: Scores) -> str:
    """Return tables for a terminal, then the signatures behind the numbers."""
    case = ", lower-cased" if scores.lower_case else ""
    names = [system.name if system.runs == 1 else f"{system.name} ({system.runs} runs)" for system in scores.systems]
    rows = [["score", *(names if len(names) > 1 or scores.systems[0].runs > 1 else ["value"]), "in the tables of"]]
    for metric in scores.metrics:
        values = [str(system.scores[metric.name]) for system in scores.systems]
        rows.append([metric.name, *values, metric.used_by or ABSENT])
    references = scores.test_set.plain.references
    parts = [
        f"sentences: {len(references[0])}, references: {len(references)}{case}",
        tabulated(rows, left=(0, len(names) + 1)),
    ]
    if scores.significance:
        first = scores.significance[0]
        parts += [f"{first.metric} against {first.baseline}: p-values", _significance_table(scores.significance)]
    parts.append("\n".join([*_notes(scores), *scores.remarks]))
    return "\n\n".join(parts) + "\n"


def _significance_table(comparisons: Sequence[Comparison]) -> str:
    tests = list(dict.fromkeys(comparison.test for comparison in comparisons))
    rows: dict[str, list[str]] = {}
    for comparison in comparisons:
        row = rows.setdefault(
            comparison.system, [comparison.system, f"{comparison.difference:+.2f}", *[ABSENT] * len(tests)]
        )
        row[2 + tests.index(comparison.test)] = number(comparison.p, ".4f")
    return tabulated([["system", "difference", *tests], *rows.values()])


def _notes(scores: Scores) -> Iterator[str]:
    first = scores.systems[0].scores
    yield from (f"{name}: {score.values[0].signature}" for name, score in first.items())
    if any(score.deviation is not None for score in first.values()):
        yield "±: standard deviation over the runs (n - 1)"
    comparisons = scores.significance
    yield from dict.fromkeys(f"{test.test}: {test.signature}" for test in comparisons if test.signature)
    if any(len(comparison.p_values) > 1 for comparison in comparisons):
        yield "p-values of the paired tests: the largest over the pairs of runs; 1 where these contradict each other"
    yield ", ".join(f"{name} {version}" for name, version in made_by().items())


def as_json(scores: Scores) -> str:
    """Return everything as JSON, not rounded."""
    return json.dumps(scores.as_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
