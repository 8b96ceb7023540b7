"""Scores as text for a terminal, Markdown, LaTeX or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fairseq_plugins.scoring.metrics import Metric
from fairseq_plugins.scoring.scores import Scores, System, SystemScore, made_by
from fairseq_plugins.scoring.several_sets import SetScores
from fairseq_plugins.scoring.significance import WELCH, Comparison
from fairseq_plugins.tables import tabulated

Content = Scores | SetScores


@dataclass(frozen=True)
class Table:
    """A table with a title; the first row is its header."""

    title: str
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Page:
    """Tables, then notes of one line each."""

    tables: Sequence[Table]
    notes: Sequence[str]


def page_of(content: Content) -> Page:
    """Return the tables and the notes as text."""
    return _page_of_sets(content) if isinstance(content, SetScores) else _page_of_scores(content)


def _page_of_scores(scores: Scores) -> Page:
    several = len(scores.systems) > 1
    main = _systems_table(scores) if several else _metrics_table(scores)
    tables = [Table(_title(scores), main)]
    if scores.significance:
        tables.append(Table(_significance_title(scores.significance), _significance_rows(scores.significance)))
    return Page(tables, [*_notes(scores, used_by=several), *scores.remarks])


def _page_of_sets(content: SetScores) -> Page:
    first = next(iter(content.sets.values()))
    tables = [Table(metric.name, _sets_table(content, metric)) for metric in first.metrics]
    for name, scores in content.sets.items():
        if scores.significance:
            title = f"{name}: {_significance_title(scores.significance)}"
            tables.append(Table(title, _significance_rows(scores.significance)))
    return Page(tables, [*_notes(first, used_by=True), *_remarks_on_sets(content)])


def _remarks_on_sets(content: SetScores) -> Iterator[str]:
    """Yield remarks that hold for all test sets once, the others with the name of the set."""
    common = set.intersection(*(set(scores.remarks) for scores in content.sets.values()))
    first = next(iter(content.sets.values()))
    yield from (remark for remark in first.remarks if remark in common)
    for name, scores in content.sets.items():
        yield from (f"{name}: {remark}" for remark in scores.remarks if remark not in common)


def _title(scores: Scores) -> str:
    references = "1 reference" if scores.references == 1 else f"{scores.references} references"
    case = ", lower-cased" if scores.lower_case else ""
    return f"{scores.sentences} sentence{'' if scores.sentences == 1 else 's'}, {references}{case}"


def _metrics_table(scores: Scores) -> list[list[str]]:
    system = scores.systems[0]
    header = ["score", "value" if system.runs == 1 else f"mean of {system.runs} runs", "in the tables of"]
    return [header, *([name, shown(one), one.metric.used_by or "-"] for name, one in system.scores.items())]


def _systems_table(scores: Scores) -> list[list[str]]:
    runs = any(system.runs > 1 for system in scores.systems)
    header = ["system", *(["runs"] if runs else []), *(metric.name for metric in scores.metrics)]
    rows = [
        [system.name, *([str(system.runs)] if runs else []), *(shown(one) for one in system.scores.values())]
        for system in scores.systems
    ]
    return [header, *rows]


def _sets_table(content: SetScores, metric: Metric) -> list[list[str]]:
    columns: list[Sequence[System]] = [*(scores.systems for scores in content.sets.values()), content.average]
    rows = [
        [system.name, *(shown(column[index].scores[metric.name]) for column in columns)]
        for index, system in enumerate(content.average)
    ]
    return [["system", *content.sets, "average"], *rows]


def shown(score: SystemScore) -> str:
    """Return a score with its spread: the deviation over runs, or the interval over resampled test sets."""
    spread = score.deviation if score.deviation is not None else score.interval
    return f"{score.mean:.2f}" + (f" ± {spread:.2f}" if spread is not None else "")


def _significance_title(comparisons: Sequence[Comparison]) -> str:
    first = comparisons[0]
    return f"{first.metric} against {first.baseline}: p-values"


def _significance_rows(comparisons: Sequence[Comparison]) -> list[list[str]]:
    tests = list(dict.fromkeys(one.test for one in comparisons))
    found: dict[str, dict[str, Comparison]] = {}
    for one in comparisons:
        found.setdefault(one.system, {})[one.test] = one
    rows = [
        [name, f"{next(iter(of.values())).difference:+.2f}", *(_p(of.get(test)) for test in tests)]
        for name, of in found.items()
    ]
    return [["system", "difference", *tests], *rows]


def _p(comparison: Comparison | None) -> str:
    return "-" if comparison is None or comparison.p is None else f"{comparison.p:.4f}"


def _notes(scores: Scores, *, used_by: bool) -> Iterator[str]:
    first = scores.systems[0]
    for name, one in first.scores.items():
        where = f"; in the tables of {one.metric.used_by}" if used_by and one.metric.used_by else ""
        yield f"{name}: {one.values[0].signature}{where}"
    if any(one.deviation is not None for one in first.scores.values()):
        yield "±: standard deviation over the runs (n - 1)"
    elif any(one.interval is not None for one in first.scores.values()):
        yield "±: 95 % interval over resampled test sets"
    yield from _significance_notes(scores.significance)
    yield ", ".join(f"{name} {version}" for name, version in made_by().items())


def _significance_notes(comparisons: Sequence[Comparison]) -> Iterator[str]:
    yield from dict.fromkeys(f"{one.test}: {one.signature}" for one in comparisons if one.signature)
    most = max((len(one.p_values) for one in comparisons), default=0)
    if most > 1:
        yield "p-values of the paired tests: the largest over the pairs of runs; 1 where these contradict each other"
    if any(one.test == WELCH for one in comparisons):
        yield "paired tests ask whether other sentences would turn the order, Welch's test whether other seeds would"
    if len({one.system for one in comparisons}) > 1:
        yield "p-values are not corrected for the number of systems compared"


def as_text(content: Content) -> str:
    """Return text for a terminal."""
    page = page_of(content)
    parts = [f"{table.title}\n\n{_tabulated(table, 'simple')}" for table in page.tables]
    return "\n\n".join([*parts, "\n".join(page.notes)]) + "\n"


def as_markdown(content: Content) -> str:
    """Return Markdown; numbers are right-aligned."""
    page = page_of(content)
    parts = [f"{table.title}\n\n{_tabulated(_escaped(table), 'pipe')}" for table in page.tables]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in page.notes)]) + "\n"


def as_latex(content: Content) -> str:
    """Return LaTeX with the package booktabs; titles and notes are comments."""
    page = page_of(content)
    parts = [f"% {table.title}\n{_tabulated(table, 'latex_booktabs')}" for table in page.tables]
    return "\n\n".join([*parts, "\n".join(f"% {note}" for note in page.notes)]) + "\n"


def as_json(content: Content) -> str:
    """Return everything as JSON, not rounded."""
    return json.dumps(content.as_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


FORMATS: Mapping[str, Callable[[Content], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "latex": as_latex,
    "json": as_json,
}

SUFFIXES: Mapping[str, str] = {".txt": "text", ".md": "markdown", ".tex": "latex", ".json": "json"}
"""Format by suffix of the file name."""


def _tabulated(table: Table, form: str) -> str:
    left = [column for column, name in enumerate(table.rows[0]) if column == 0 or name == "in the tables of"]
    return tabulated(table.rows, form, left)


def _escaped(table: Table) -> Table:
    return Table(table.title, [[cell.replace("|", "\\|") for cell in row] for row in table.rows])
