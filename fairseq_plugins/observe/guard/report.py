"""The report of an incident, in Markdown with a picture: problem, place, action."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_plugins.files import write_whole
from fairseq_plugins.observe.guard.places import Place, Row
from fairseq_plugins.observe.guard.signals import COLLAPSE, GRADIENT_SPIKE, NOT_FINITE, PLATEAU, SPIKE, Finding, Update
from fairseq_plugins.plots import LOOKS, load_pyplot, save

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
        "In half precision: `--divergence-action fp32`, or `--bf16`.",
        "A method that bounds the branches (docs/methods.md).",
    ),
    SPIKE: (
        "A lower learning rate or a longer warm-up; `--clip-norm`.",
        "`--divergence-action skip` if single batches are to blame, `lower-lr` if it happens again.",
        "A method that bounds the branches (docs/methods.md).",
    ),
    GRADIENT_SPIKE: (
        "Nothing, if the loss keeps falling: `--clip-norm` bounds what one such gradient can do.",
        "A lower learning rate or a longer warm-up if it happens often; `--divergence-action skip` drops each.",
    ),
    COLLAPSE: (
        "`--divergence-action fp32`, or `--bf16`: float16 cannot hold these gradients at any scale.",
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
        save_dir: directory of the run's checkpoints.
    """

    def __init__(self, save_dir: Path) -> None:
        self._directory = save_dir / DIRECTORY
        self._written = 0

    def write(self, incident: Incident, history: Sequence[Update]) -> None:
        """Write the report, or rewrite it with the actions since. A full disk is a warning."""
        if incident.path is None and self._written >= MOST_REPORTS and not incident.ends:
            return
        before = incident.path
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            if incident.path is None:
                incident.path = self._free(incident.update.number)
                picture = draw(incident, history, incident.path.with_suffix(".png"))
            else:
                picture = incident.path.with_suffix(".png").exists()
            write_whole(incident.path, "\n".join(lines(incident, history, picture)) + "\n")
            self._written += before is None
        except OSError as error:
            # Do not point users to a report that does not exist.
            incident.path = before
            logger.warning("divergence guard: no report: %s: %s", self._directory, error.strerror or error)

    def _free(self, update: int) -> Path:
        """Return a free path: a dropped update leaves its number to the next, and a resumed run repeats some."""
        path, number = self._directory / f"update-{update}.md", 1
        while path.exists():
            number += 1
            path = self._directory / f"update-{update}-{number}.md"
        return path


def lines(incident: Incident, history: Sequence[Update], picture: bool) -> Iterator[str]:
    """The report in Markdown, line by line."""
    update, place = incident.update, incident.place
    title = "Failed to train" if incident.finding.kind == PLATEAU else "Abnormal update"
    yield f"# {title}: update {update.number}"
    yield ""
    yield f"- **What**: {incident.finding.reason}"
    where = "Where it is stuck" if incident.finding.kind == PLATEAU else "Where first"
    yield f"- **{where}**: {f'`{place.name}` ({place.how})' if place else 'not known'}"
    if incident.weights:
        more = f" and {len(incident.weights) - NAMED} more" if len(incident.weights) > NAMED else ""
        yield f"- **Weights that are not finite**: {', '.join(f'`{one}`' for one in incident.weights[:NAMED])}{more}"
    yield f"- **Done**: {'; '.join(incident.steps) or 'nothing'}"
    yield ""
    if picture and incident.path is not None:
        yield f"![loss, gradient norm, learning rate]({incident.path.with_suffix('.png').name})"
        yield ""
    yield from _last_updates(update, history)
    if incident.rows:
        yield ""
        yield from _statistics(incident)
    yield ""
    yield "## What to try"
    yield ""
    yield from (f"- {one}" for one in ADVICE[incident.finding.kind])


def _last_updates(update: Update, history: Sequence[Update]) -> Iterator[str]:
    shown = [*[one for one in history if one is not update][-LAST_UPDATES:], update]
    scaled = any(one.loss_scale is not None for one in shown)
    yield "## The last updates"
    yield ""
    yield f"| update | loss, bits | gradient norm | learning rate |{' loss scale |' if scaled else ''}"
    yield f"|---:|---:|---:|---:|{'---:|' if scaled else ''}"
    for one in shown:
        scale = f" {one.loss_scale:g} |" if one.loss_scale is not None else " |"
        last = scale if scaled else ""
        yield f"| {one.number} | {one.loss:.4g} | {one.norm:.4g} | {one.learning_rate:.4g} |{last}"


def _statistics(incident: Incident) -> Iterator[str]:
    name = incident.place.name if incident.place else ""
    own = [row for row in incident.rows if row.place == name]
    others = [row for row in incident.rows if row.place != name]
    shown = own + others[: max(0, MOST_ROWS - len(own))]
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
    if hidden > 0:
        yield ""
        yield f"{hidden} more are not shown."


def draw(incident: Incident, history: Sequence[Update], path: Path) -> bool:
    """Draw the last updates into ``path``; whether that was possible: matplotlib is optional."""
    pyplot = load_pyplot()
    if pyplot is None:
        return False
    shown = [one for one in history if one is not incident.update] + [incident.update]
    figure, axes = pyplot.subplots(3, 1, figsize=(7, 6), sharex=True, layout="constrained")
    panels = (
        ("loss (bits)", [one.loss for one in shown], False),
        ("gradient norm", [one.norm for one in shown], True),
        ("learning rate", [one.learning_rate for one in shown], False),
    )
    for axis, (label, values, logarithmic), (style, _, colour) in zip(axes, panels, LOOKS, strict=False):
        # By position: an update that was dropped and the next one have the same number.
        axis.plot(range(len(shown)), values, linestyle=style, color=colour, linewidth=1.2)
        # A value that is not finite has no place on the axis: a mark at the top says so.
        top = [index for index, value in enumerate(values) if not math.isfinite(value)]
        axis.plot(top, [0.97] * len(top), marker="x", color=colour, linestyle="", transform=axis.get_xaxis_transform())
        axis.axvline(len(shown) - 1, color="0.6", linewidth=0.8, linestyle="--")
        if logarithmic and all(value > 0 for value in values):
            axis.set_yscale("log")
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
    ticks = range(0, len(shown), max(1, len(shown) // 6))
    axes[-1].set_xticks(list(ticks), [str(shown[tick].number) for tick in ticks])
    axes[-1].set_xlabel("update (x: not finite)")
    figure.suptitle(f"update {incident.update.number}: {incident.place.name if incident.place else 'abnormal'}")
    save(figure, path)
    pyplot.close(figure)
    return True
