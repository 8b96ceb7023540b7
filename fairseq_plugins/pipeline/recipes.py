"""Find the published rows of a run, by its configuration and changes."""

from __future__ import annotations

from fairseq_plugins.pipeline.published import PublishedRow, rows_of
from fairseq_plugins.pipeline.run import Run


def published_rows(run: Run) -> list[PublishedRow]:
    """The published rows of a run's configuration whose overrides match most of its changes."""
    changes = {change.lstrip("+") for change in run.overrides}
    rows = [row for row in rows_of(run.config or "") if _changes(row) <= changes]
    most = max((len(row.overrides) for row in rows), default=0)
    return [row for row in rows if len(row.overrides) == most]


def rows_reproduced(run: Run) -> list[PublishedRow]:
    """The published rows with exactly the run's recipe, whatever its seed."""
    own = {change.lstrip("+") for change in run.changes}
    return [row for row in rows_of(run.config or "") if _changes(row) == own]


def _changes(row: PublishedRow) -> set[str]:
    return {change.lstrip("+") for change in row.overrides}
