"""What the guard writes down of an incident: problem, place, action; in Markdown, and as a line of the log."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_plugins.files import write_whole
from fairseq_plugins.observe.guard.places import Place, Row
from fairseq_plugins.observe.guard.signals import COLLAPSE, GRADIENT_SPIKE, NOT_FINITE, PLATEAU, SPIKE, Finding, Update

logger = logging.getLogger(__name__)

DIRECTORY = "divergence"
"""Directory below ``--save-dir``."""
MOST_REPORTS = 20
"""Maximum number of reports of one run; later incidents are only logged, except the one that ends the run."""
MOST_ROWS = 20
LAST_UPDATES = 10
NAMED = 5
"""Maximum number of weights in a report."""
ADVICE = {
    NOT_FINITE: (
        "If the same weights are not finite in the last checkpoint, go back to one before it.",
        "In half precision: `--bf16`, or float32.",
        "A method that bounds the branches (docs/methods.md).",
    ),
    SPIKE: (
        "A lower learning rate or a longer warm-up; `--clip-norm`.",
        "`--divergence-action skip` if single batches are to blame.",
        "A method that bounds the branches (docs/methods.md).",
    ),
    GRADIENT_SPIKE: (
        "Nothing, if the loss keeps falling: `--clip-norm` bounds what one such gradient can do.",
        "A lower learning rate or a longer warm-up if it happens often; `--divergence-action skip` drops each.",
    ),
    COLLAPSE: (
        "`--bf16` or float32: float16 cannot hold these gradients at any scale.",
        "A lower learning rate, if loss and gradient norm rose before.",
    ),
    PLATEAU: (
        "A longer warm-up, a lower learning rate, or a method that trains at this depth (docs/methods.md).",
        "Check that source and target sentences belong together: `fairseq-deep verify-data`.",
        "`fairseq-deep diagnose` shows where gradients vanish in this model.",
    ),
}


@dataclass
class Incident:
    """One stretch of abnormal updates.

    Attributes:
        update: the first of these updates.
        finding: its problem.
        place: where it showed first; ``None`` if unknown.
        rows: statistics of the update against their bands, the worst first.
        weights: names of weights that are not finite.
        steps: the actions, in order.
        path: path of the report; ``None`` before it is written, and in all processes except the first.
        ends: whether the training ends with it.
    """

    update: Update
    finding: Finding
    place: Place | None = None
    rows: Sequence[Row] = ()
    weights: Sequence[str] = ()
    steps: list[str] = field(default_factory=list)
    path: Path | None = None
    ends: bool = False


class Reports:
    """The reports of one run; only the first process has one.

    Args:
        directory: where to write them.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written = 0

    def write(self, incident: Incident, history: Sequence[Update]) -> None:
        """Write the report, or rewrite it with the actions since. A full disk is a warning."""
        if incident.path is None and self._written >= MOST_REPORTS and not incident.ends:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            path = incident.path or self._free(incident.update.number)
            write_whole(path, "\n".join(lines(incident, history)) + "\n")
        except OSError as error:
            logger.warning("divergence guard: no report: %s: %s", self._directory, error.strerror or error)
            return
        self._written += incident.path is None
        incident.path = path

    def _free(self, update: int) -> Path:
        """Return a free path: a dropped update leaves its number to the next, and a resumed run repeats some."""
        path, number = self._directory / f"update-{update}.md", 1
        while path.exists():
            number += 1
            path = self._directory / f"update-{update}-{number}.md"
        return path


def record(update: int, text: str, ends: str = "") -> str:
    """Return an action of the guard as the line of a log that programs read.

    Args:
        update: number of the update.
        text: the problem and the action, for a reader.
        ends: why the training ends here, if it does.
    """
    line = json.dumps({"divergence_guard": text, "update": update, "ends": ends})
    # Without inner braces it can be found at the end of a line of the log.
    return "{" + line[1:-1].replace("{", "\\u007b").replace("}", "\\u007d") + "}"


def lines(incident: Incident, history: Sequence[Update]) -> Iterator[str]:
    """Yield the report in Markdown, line by line."""
    place, stuck = incident.place, incident.finding.kind == PLATEAU
    yield f"# {'Failed to train' if stuck else 'Abnormal update'}: update {incident.update.number}"
    yield ""
    yield f"- **What**: {incident.finding.reason}"
    where = "Where it is stuck" if stuck else "Where first"
    yield f"- **{where}**: {f'`{place.name}` ({place.how})' if place else 'not known'}"
    if incident.weights:
        more = f" and {len(incident.weights) - NAMED} more" if len(incident.weights) > NAMED else ""
        names = ", ".join(f"`{name}`" for name in incident.weights[:NAMED])
        yield f"- **Weights that are not finite**: {names}{more}"
    yield f"- **Done**: {'; '.join(incident.steps) or 'nothing'}"
    yield ""
    yield from _last_updates(incident.update, history)
    if incident.rows:
        yield ""
        yield from _statistics(incident)
    yield ""
    yield "## What to try"
    yield ""
    yield from (f"- {advice}" for advice in ADVICE[incident.finding.kind])


def _last_updates(update: Update, history: Sequence[Update]) -> Iterator[str]:
    shown = [*[before for before in history if before is not update][-LAST_UPDATES:], update]
    scaled = any(row.loss_scale is not None for row in shown)
    yield "## The last updates"
    yield ""
    yield f"| update | loss, bits | gradient norm | learning rate |{' loss scale |' if scaled else ''}"
    yield f"|---:|---:|---:|---:|{'---:|' if scaled else ''}"
    for row in shown:
        scale = "" if row.loss_scale is None else f"{row.loss_scale:g}"
        last = f" {scale} |" if scaled else ""
        yield f"| {row.number} | {row.loss:.4g} | {row.norm:.4g} | {row.learning_rate:.4g} |{last}"


def _statistics(incident: Incident) -> Iterator[str]:
    name = incident.place.name if incident.place else ""
    shown = sorted(incident.rows, key=lambda row: row.place != name)[:MOST_ROWS]
    stuck = incident.finding.kind == PLATEAU
    yield (
        "## Gradients, the smallest first" if stuck else "## Statistics of this update: the named place, then the worst"
    )
    yield ""
    yield "| place | statistic | value | band | deviations | outside since update |"
    yield "|---|---|---:|---:|---:|---:|"
    for row in shown:
        band = "none yet" if math.isnan(row.low) else f"{row.low:.3g} to {row.high:.3g}"
        distance = "" if math.isnan(row.distance) else f"{row.distance:+.1f}"
        yield f"| {row.place} | {row.kind} | {row.value:.3g} | {band} | {distance} | {row.since or ''} |"
    hidden = len(incident.rows) - len(shown)
    if hidden:
        yield ""
        yield f"{hidden} more are not shown."
