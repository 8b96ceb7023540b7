"""A report as one HTML file: table, curves, gradient norms, sentences and settings; a browser needs no network for it.

``page.html`` has the layout and the little JavaScript of our own. Vega draws; vl-convert, the extra ``html``, ships it.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fairseq_plugins.tables import Cells, tabulated
from fairseq_plugins.tools.observe.recorder.entries import NAME, Entry, read
from fairseq_plugins.tools.pipeline.leaderboard import VALID, Group, lines_of
from fairseq_plugins.tools.pipeline.results import HYPOTHESES, REFERENCES, Run
from fairseq_plugins.tools.pipeline.resume import flat
from fairseq_plugins.tools.plots import look

T = TypeVar("T")
NO_PAGE = "no page: vl-convert-python is not installed (pip install 'fairseq-deep[html]')"
TEMPLATE = Path(__file__).with_name("page.html")
CURVE, COLUMNS, SENTENCES = 200, 60, 10
"""Most points of a curve, most columns of a heat map, and sentences that are shown."""
LIGHTEST = 0.02
"""Share of the norms below the lower end of their scale."""
DASHES = {"-": [], "--": [8, 4], "-.": [8, 4, 2, 4], ":": [2, 3]}
"""Vega's names of the line styles."""
GRADIENT = re.compile(r"(?P<stack>.+)\.(?:transformer_)?layers\.(?P<layer>\d+)(?:\..+)?/gradient_norm")
"""The gradient norm of a sub-layer, as the recorder names it."""
PLACE = re.compile(r"<!--(\w+)-->")


def vega() -> str | None:
    """Vega, Vega-Lite and their embedding as one script; None if vl-convert is not installed."""
    try:
        import vl_convert
    except ImportError:
        return None
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script


def page(
    script: str, groups: Sequence[Group], table: Cells, tests: Cells, legend: Sequence[str], notes: Sequence[str]
) -> str:
    """Return the page.

    Args:
        script: that of :func:`vega`.
        groups: the rows of the report, each with its runs.
        table: the scores, the header first.
        tests: the tests of significance, the header first.
        legend: its lines below the table.
        notes: further lines there.

    Raises:
        UserError: a file of a recorder cannot be read.
    """
    compared = sentences(groups)
    parts = {
        "table": tabulated(table, "html"),
        "legend": _items(legend),
        "notes": _items(notes),
        "tests": tabulated(tests, "html", left=(0, 1, 2, 4)),
        "sentences": tabulated(compared, "html", left=range(len(compared[0]))) if compared else "",
        "vega": script,
        "data": packed(data(groups)),
    }
    # One pass: what is inserted is not searched for places.
    return PLACE.sub(lambda place: parts[place[1]], TEMPLATE.read_text(encoding="utf-8"))


def packed(content: Mapping[str, Any]) -> str:
    """JSON, compressed, in letters."""
    return base64.b64encode(gzip.compress(json.dumps(content, allow_nan=False).encode(), mtime=0)).decode()


def _items(lines: Sequence[str]) -> str:
    return "".join(f"<li>{escape(line)}</li>" for line in lines)


# --- what the scripts of the page read ------------------------------------------------------------------------------


def data(groups: Sequence[Group]) -> dict[str, Any]:
    """Everything that is drawn, as JSON without numbers that are not finite."""
    looks = [look(number) for number in range(len(groups))]
    runs = [(group, run) for group in groups for run in group.runs]
    names = run_names(runs)
    recipes = [recipe(run) for _, run in runs]
    keys = sorted({key for settings in recipes for key in settings})
    recorded = [gradients(run) for _, run in runs]
    return {
        "groups": [group.label for group in groups],
        "colours": [colour for _, _, colour in looks],
        "dashes": [DASHES[style] for style, _, _ in looks],
        "curves": [point for group in groups for point in curves(group)],
        "events": [event for name, (group, run) in zip(names, runs, strict=True) for event in events(group, run, name)],
        "runs": names,
        "of": [number for number, group in enumerate(groups) for _ in group.runs],
        "gradients": recorded,
        "shades": shades(recorded),
        "keys": keys,
        "settings": [[settings.get(key) for key in keys] for settings in recipes],
    }


def run_names(runs: Sequence[tuple[Group, Run]]) -> list[str]:
    """A name for each run, unlike all others: its row and its seed, if it has one, and its directory if needed."""
    names = [group.label if run.seed is None else f"{group.label}, seed {run.seed}" for group, run in runs]
    return [
        name if names.count(name) == 1 else f"{name}, {run.directory}"
        for name, (_, run) in zip(names, runs, strict=True)
    ]


def thinned(items: Sequence[T], most: int, size: Callable[[T], float]) -> list[T]:
    """At most ``most`` of them in their order: of neighbours the largest, so that a spike stays, and the last."""
    if len(items) <= most:
        return list(items)
    ends = [round(number * (len(items) - 1) / (most - 1)) for number in range(most)]
    largest = (max(items[start:end], key=size) for start, end in zip(ends, ends[1:], strict=False))
    return [*largest, items[-1]]


def clock(runs: Sequence[Run]) -> Callable[[int], float | None]:
    """What tells the hours up to an update: the mean over the runs, between the updates of their logs."""
    clocks = [np.array([(0, 0.0), *run.log.seconds.items()]).T for run in runs if run.log.seconds]

    def hours(updates: int) -> float | None:
        seconds = [np.interp(updates, *known) for known in clocks]
        return float(f"{np.mean(seconds) / 3600:.4g}") if seconds else None

    return hours


def curves(group: Group) -> Iterator[dict[str, Any]]:
    """Points of its losses: the mean over the seeds, with the band of one standard deviation."""
    of_each: dict[str, Callable[[Run], Mapping[int, float]]] = {
        "validation": lambda run: run.log.valid_loss,
        "training": lambda run: run.log.train_loss,
    }
    hours = clock(group.runs)
    for kind, losses in of_each.items():
        for updates, mean, spread in thinned(group.course(losses), CURVE, lambda point: point[1]):
            low, loss, high = (float(f"{value:.4g}") for value in (mean - spread, mean, mean + spread))
            point = {"group": group.label, "kind": kind, "updates": updates, "hours": hours(updates)}
            yield {**point, "loss": loss, "low": low, "high": high}


def events(group: Group, run: Run, name: str) -> Iterator[dict[str, Any]]:
    """What the guard said of a run."""
    hours = clock([run])
    for updates, says in run.log.guard.items():
        yield {"group": group.label, "run": name, "updates": updates, "hours": hours(updates), "says": says}


def gradients(run: Run) -> dict[str, Any] | None:
    """Gradient norm of every layer in updates of the recorder; None if nothing was recorded.

    The norm of a layer is that of the norms of its sub-layers. One that is not finite is None.
    """
    file = run.checkpoints / NAME
    # An update that was dropped has given its number to the next.
    entries = list({entry.update: entry for entry in (read(file) if file.is_file() else ())}.values())
    shown = thinned(entries, COLUMNS, _whole_norm)
    stacks: dict[str, dict[int, list[float | None]]] = {}
    for place, entry in enumerate(shown):
        for (stack, layer), norm in _layers(entry.values).items():
            rows = stacks.setdefault(stack, {}).setdefault(layer, [None] * len(shown))
            rows[place] = float(f"{norm:.3g}") if math.isfinite(norm) else None
    if not stacks:
        return None
    # By number: a layer that is not trained has no norm.
    by_layer = {stack: dict(sorted(rows.items())) for stack, rows in stacks.items()}
    return {"updates": [entry.update for entry in shown], "stacks": by_layer}


def _whole_norm(entry: Entry) -> float:
    """The gradient norm of all layers; NaN, which has no order, is the largest."""
    norm = entry.values.get("gradient_norm", 0.0)
    return math.inf if math.isnan(norm) else norm


def shades(recorded: Sequence[Mapping[str, Any] | None]) -> list[float]:
    """The ends of one scale for all heat maps; of tiny norms, such as ReZero's first ones, a share is below it."""
    stacks = [rows for run in recorded if run for rows in run["stacks"].values()]
    norms = [norm for rows in stacks for row in rows.values() for norm in row if norm] or [1.0]
    high = max(norms)
    return [float(min(np.quantile(norms, LIGHTEST), high / 1.1)), high]  # a scale needs a width


def _layers(values: Mapping[str, float]) -> dict[tuple[str, int], float]:
    """The norm of each layer, by stack and number."""
    parts: dict[tuple[str, int], list[float]] = {}
    for name, value in values.items():
        if match := GRADIENT.fullmatch(name):
            parts.setdefault((match["stack"], int(match["layer"])), []).append(value)
    return {place: math.hypot(*norms) for place, norms in parts.items()}


def recipe(run: Run) -> dict[str, str]:
    """The settings of a run by their full names; its command only repeats them, with its directory."""
    settings = {name: value for name, value in flat(run.settings) if name != "command"}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in settings.items()}


# --- sentences ------------------------------------------------------------------------------------------------------


def sentences(groups: Sequence[Group]) -> list[list[str]]:
    """Sentences of the first test set, spread evenly: a row each, with a column for each recipe's first seed."""
    sets = {evaluation.test_set for group in groups for evaluation in group.evaluations()}
    test_set = min(sets, key=lambda name: (name == VALID, name), default="")
    references: list[str] = []
    columns: list[tuple[str, list[str]]] = []
    for group in groups:
        for evaluation in group.evaluations(test_set)[:1]:
            hypotheses, own = (lines_of(evaluation.directory / name) for name in (HYPOTHESES, REFERENCES))
            if not references and own:
                references = own
                columns = [*_source(group.runs[0], test_set, len(own)), ("reference", own)]
            if own and own == references and len(hypotheses) == len(own):
                columns.append((group.label, hypotheses))
    chosen = sorted({number * len(references) // SENTENCES for number in range(SENTENCES)}) if references else []
    rows = [[str(number + 1), *(lines[number] for _, lines in columns)] for number in chosen]
    return [["", *(name for name, _ in columns)], *rows] if rows else []


def _source(run: Run, test_set: str, count: int) -> list[tuple[str, list[str]]]:
    """The column of the source of a test set, if the prepared directory is still there."""
    language = run.configured("task", "source_lang")
    lines = lines_of(run.data / "raw" / f"{test_set}.{language}") if run.data and language else []
    return [("source", lines)] if len(lines) == count else []
