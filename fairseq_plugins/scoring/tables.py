"""Scores as text for a terminal, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from fairseq_plugins.scoring.scores import Scores, made_by
from fairseq_plugins.scoring.significance import WELCH, Comparison
from fairseq_plugins.tables import ABSENT, number, tabulated


def as_text(scores: Scores) -> str:
    """Return tables for a terminal, then the signatures behind the numbers."""
    references = "1 reference" if scores.references == 1 else f"{scores.references} references"
    case = ", lower-cased" if scores.lower_case else ""
    parts = [f"{scores.sentences} sentence{'' if scores.sentences == 1 else 's'}, {references}{case}"]
    several = len(scores.systems) > 1
    parts.append(_systems_table(scores) if several else _metrics_table(scores))
    if scores.significance:
        first = scores.significance[0]
        parts += [f"{first.metric} against {first.baseline}: p-values", _significance_table(scores.significance)]
    parts.append("\n".join([*_notes(scores, papers=several), *scores.remarks]))
    return "\n\n".join(parts) + "\n"


def _metrics_table(scores: Scores) -> str:
    system = scores.systems[0]
    header = ["score", "value" if system.runs == 1 else f"mean of {system.runs} runs", "in the tables of"]
    rows = [[name, str(score), score.metric.used_by or ABSENT] for name, score in system.scores.items()]
    return tabulated([header, *rows], left=(0, 2))


def _systems_table(scores: Scores) -> str:
    runs = any(system.runs > 1 for system in scores.systems)
    header = ["system", *(["runs"] if runs else []), *(metric.name for metric in scores.metrics)]
    rows = [
        [system.name, *([str(system.runs)] if runs else []), *map(str, system.scores.values())]
        for system in scores.systems
    ]
    return tabulated([header, *rows])


def _significance_table(comparisons: Sequence[Comparison]) -> str:
    tests = list(dict.fromkeys(comparison.test for comparison in comparisons))
    rows: dict[str, list[str]] = {}
    for comparison in comparisons:
        row = rows.setdefault(
            comparison.system, [comparison.system, f"{comparison.difference:+.2f}", *[ABSENT] * len(tests)]
        )
        row[2 + tests.index(comparison.test)] = number(comparison.p, ".4f")
    return tabulated([["system", "difference", *tests], *rows.values()])


def _notes(scores: Scores, *, papers: bool) -> Iterator[str]:
    first = scores.systems[0].scores
    for name, score in first.items():
        where = f"; in the tables of {score.metric.used_by}" if papers and score.metric.used_by else ""
        yield f"{name}: {score.values[0].signature}{where}"
    if any(score.deviation is not None for score in first.values()):
        yield "±: standard deviation over the runs (n - 1)"
    elif any(score.interval is not None for score in first.values()):
        yield "±: 95 % interval over resampled test sets"
    comparisons = scores.significance
    yield from dict.fromkeys(f"{test.test}: {test.signature}" for test in comparisons if test.signature)
    if any(len(comparison.p_values) > 1 for comparison in comparisons):
        yield "p-values of the paired tests: the largest over the pairs of runs; 1 where these contradict each other"
    if any(comparison.test == WELCH for comparison in comparisons):
        yield "paired tests ask whether other sentences would turn the order, Welch's test whether other seeds would"
    if len({comparison.system for comparison in comparisons}) > 1:
        yield "p-values are not corrected for the number of systems compared"
    yield ", ".join(f"{name} {version}" for name, version in made_by().items())


def as_json(scores: Scores) -> str:
    """Return everything as JSON, not rounded."""
    return json.dumps(scores.as_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


FORMATS: Mapping[str, Callable[[Scores], str]] = {"text": as_text, "json": as_json}
SUFFIXES: Mapping[str, str] = {".txt": "text", ".json": "json"}
"""Format by suffix of the file name."""
