"""The hits of a session by fault and subject, and how each failure is repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fairseq_plugins.tables import markdown_table
from tests.faults.campaign import Outcome


def table(outcomes: Sequence[Outcome]) -> str:
    """A row for each fault, a column for each subject; then the failures."""
    hits: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        hits[outcome.fault, outcome.subject] += outcome.hits
    faults, subjects = (list(dict.fromkeys(pair[side] for pair in hits)) for side in (0, 1))
    rows = [[fault, *(str(hits[fault, subject] or "") for subject in subjects)] for fault in faults]
    total = sum(outcome.hits for outcome in outcomes)
    through = sum(outcome.through for outcome in outcomes)
    failures = list(_failures(outcomes))
    last = f"{total} hits, {through} results compared, {len(failures)} failures"
    return "\n".join([markdown_table([["hits", *subjects], *rows]), "", *failures, last])


def _failures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for outcome in outcomes:
        if outcome.failures:
            again = f"--seed {outcome.seed} --only '{outcome.subject}' '{outcome.fault}'"
            yield f"{outcome.subject}, {outcome.fault} ({again}): {'; '.join(outcome.failures)}"
