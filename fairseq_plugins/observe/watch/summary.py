"""Summary of each watched run: its series, its spikes and its verdict; as a table, CSV, JSON and a figure."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fairseq_plugins.observe.diagnostics.plots import Figure, Line, Lines
from fairseq_plugins.observe.watch.spikes import DEVIATIONS, WINDOW, spikes
from fairseq_plugins.pipeline.fairseq_log import TrainingLog
from fairseq_plugins.pipeline.outcomes import OK, Verdict
from fairseq_plugins.pipeline.run import Run
from fairseq_plugins.pipeline.verdicts import NOT_FINISHED, updates_wanted, verdict_on_training
from fairseq_plugins.tables import ABSENT, number, strict_json, tabulated, without_empty_columns

NAME = "watch"
"""Name of the files, without suffix."""


@dataclass(frozen=True)
class Series:
    """One measured series by number of updates: its name in the files, its panel, and its place in the log."""

    name: str
    title: str
    unit: str
    form: str
    of: Callable[[TrainingLog], Mapping[int, float]]
    log_scale: bool = False


SERIES = (
    Series("train_loss", "train loss", "bits per token", ".3f", lambda log: log.train_loss),
    Series("valid_loss", "valid loss", "bits per token", ".3f", lambda log: log.valid_loss),
    Series("valid_bleu", "valid BLEU", "BLEU", ".2f", lambda log: log.valid_bleu),
    Series("gradient_norm", "gradient norm", "L2 norm before clipping", ".3f", lambda log: log.gradient_norm, True),
    Series("loss_scale", "loss scale", "factor", "g", lambda log: log.loss_scale, True),
    Series("learning_rate", "learning rate", "step size", ".2e", lambda log: log.learning_rate),
)
"""From left to right. Losses are negative log-likelihoods without label smoothing."""


@dataclass(frozen=True)
class Summary:
    """A run with its short name and the settings for spikes of its gradient norm."""

    name: str
    run: Run
    window: int = WINDOW
    deviations: float = DEVIATIONS

    @cached_property
    def verdict(self) -> Verdict:
        """Verdict on the run so far."""
        return verdict_on_training(self.run)

    @cached_property
    def spikes(self) -> list[int]:
        """Updates at which the gradient norm was a spike."""
        return spikes(self.run.log.gradient_norm, self.window, self.deviations)

    @property
    def wanted(self) -> int | None:
        """Number of updates to make; None without a limit."""
        return updates_wanted(self.run)

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.verdict.outcome != NOT_FINISHED

    def latest(self, series: Series) -> float | None:
        """Return the value at the latest update; None if there is none."""
        values = series.of(self.run.log)
        return values[max(values)] if values else None

    @property
    def best_valid_loss(self) -> float | None:
        """Return the lowest valid loss; None before the first validation."""
        return min((loss for loss in self.run.log.valid_loss.values() if math.isfinite(loss)), default=None)

    def line(self) -> str:
        """Return the run in one line."""
        wanted = f" of {self.wanted:,}" if self.wanted else ""
        parts = [f"{self.run.updates:,}{wanted} updates"]
        for series in SERIES:
            value = self.latest(series)
            parts += [] if value is None else [f"{series.title} {value:{series.form}}"]
        parts += [f"{len(self.spikes)} spikes"] if self.spikes else []
        return f"{self.name}: {', '.join(parts)}"

    def ending(self) -> str:
        """Return the line for a run that has ended."""
        return f"{self.name}: ended after {self.run.updates:,} updates: {self.verdict.outcome} ({self.verdict.reason})"


# --- the table ------------------------------------------------------------------------------------------------------


def table(summaries: Sequence[Summary]) -> list[str]:
    """Return the latest numbers, one line per run, and the reason of a verdict other than ``ok``; no empty columns."""
    # A narrow terminal cuts the lines: the most important columns come first.
    header = [
        "run",
        "verdict",
        "updates",
        *(series.title for series in SERIES),
        "best valid",
        "spikes",
        "guarded",
        "overflows",
        "tokens/s",
    ]
    lines = tabulated(without_empty_columns([header, *map(_row, summaries)])).splitlines()
    reasons = [f"{one.name}: {one.verdict.reason}" for one in summaries if one.verdict.outcome != OK]
    return [*lines, *reasons]


def _row(one: Summary) -> list[str]:
    log = one.run.log
    wanted = f"/{one.wanted:,}" if one.wanted else ""
    return [
        one.name,
        one.verdict.outcome,
        f"{one.run.updates:,}{wanted}",
        *(number(one.latest(series), series.form) for series in SERIES),
        number(one.best_valid_loss, ".3f"),
        str(len(one.spikes)) if log.gradient_norm else ABSENT,
        str(len(log.guarded)) if log.guarded else ABSENT,
        str(log.overflows) if log.loss_scale or log.overflows else ABSENT,
        number(log.median_speed, ",.0f"),
    ]


# --- files ----------------------------------------------------------------------------------------------------------


def as_csv(summaries: Sequence[Summary]) -> str:
    """Return every value of every series, one per line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "series", "updates", "value"])
    for one in summaries:
        for series in SERIES:
            writer.writerows([one.name, series.name, *point] for point in sorted(series.of(one.run.log).items()))
    return text.getvalue()


def as_json(summaries: Sequence[Summary]) -> str:
    """Return every number and every verdict; a number that is not finite is null."""
    return strict_json({"schema": 1, "runs": [_as_dict(one) for one in summaries]})


def _as_dict(one: Summary) -> dict[str, Any]:
    log = one.run.log
    return {
        "name": one.name,
        "directory": str(one.run.directory),
        "updates": one.run.updates,
        "max_update": one.wanted,
        "parameters": log.parameters,
        "verdict": one.verdict.outcome,
        "reason": one.verdict.reason,
        "latest": {series.name: one.latest(series) for series in SERIES},
        "best_valid_loss": one.best_valid_loss,
        "tokens_per_second": log.median_speed,
        "overflows": log.overflows,
        "loss_scale_exhausted": log.loss_scale_exhausted,
        "spikes": {"window": one.window, "deviations": one.deviations, "updates": one.spikes},
        "guarded": {str(update): text for update, text in sorted(log.guarded.items())},
        "series": {series.name: _points(series.of(log)) for series in SERIES if series.of(log)},
    }


def _points(values: Mapping[int, float]) -> dict[str, list[Any]]:
    points = sorted(values.items())
    return {"updates": [updates for updates, _ in points], "values": [value for _, value in points]}


def figure(summaries: Sequence[Summary]) -> Figure:
    """Return a panel for each series that any run has; a run looks the same in all of them."""
    panels = [_panel(series, summaries) for series in SERIES]
    drawn = [panel for panel in panels if any(line.points for line in panel.lines)]
    return Figure(NAME, "Trainings by number of updates", drawn, columns=2 if len(drawn) < 5 else 3)


def _panel(series: Series, summaries: Sequence[Summary]) -> Lines:
    lines = []
    for one in summaries:
        values = sorted(series.of(one.run.log).items())
        finite = [(float(updates), value) for updates, value in values if math.isfinite(value)]
        lines.append(Line(one.name, finite))
    return Lines(series.title, "updates", series.unit, lines, log_y=series.log_scale)
