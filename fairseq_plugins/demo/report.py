"""What the job ends in: a table, a picture of the losses, sample translations, and the numbers as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Optional, Sequence

from fairseq_plugins.demo.stage import write_whole
from fairseq_plugins.demo.training_log import FAILED_TO_LEARN_MARGIN

NUM_SAMPLES = 10

# Line style, marker, colour; the colours run from dark to light in grey and are apart for the colour-blind.
_LOOKS = (
    ("-", "o", "#000000"), ("--", "s", "#0072b2"), ("-.", "^", "#d55e00"), (":", "D", "#009e73"),
    ("-", "v", "#cc79a7"), ("--", "<", "#e69f00"), ("-.", ">", "#56b4e9"),
)  # fmt: skip
_HEADER = ("method", "parameters", "diverged", "valid loss", "BLEU", "tokens/s")
_ABSENT = "-"


@dataclass(frozen=True)
class Result:
    """One row: a method's training and translation; None where a step was not reached."""

    method: str
    failed: Optional[str] = None
    """Why there is no result, with the log's path; None where the method came through."""
    parameters: Optional[int] = None
    diverged: Optional[bool] = None
    verdict: str = ""
    valid_loss: Optional[float] = None
    """Negative log-likelihood of the last checkpoint on the valid set, bits per target token."""
    bleu: Optional[float] = None
    signature: Optional[str] = None
    tokens_per_second: Optional[float] = None
    train_curve: dict[int, float] = field(default_factory=dict)
    valid_curve: dict[int, float] = field(default_factory=dict)
    hypotheses: tuple[str, ...] = ()
    command: str = ""
    """What trained it, as typed in the job's directory."""


@dataclass(frozen=True)
class Report:
    """Everything the job found out."""

    title: str
    results: tuple[Result, ...]
    sources: tuple[str, ...]
    references: tuple[str, ...]
    unigram_entropy: float
    settings: dict[str, Any]
    seconds: float


def rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """The table's cells, header first."""
    return [_HEADER, *(_row(result) for result in results)]


def _row(result: Result) -> tuple[str, ...]:
    if result.failed:
        diverged = "failed"
    else:
        diverged = _ABSENT if result.diverged is None else ("yes" if result.diverged else "no")
    return (
        result.method,
        _number(result.parameters, ",d"),
        diverged,
        _number(result.valid_loss, ".2f"),
        _number(result.bleu, ".1f"),
        _number(result.tokens_per_second, ",.0f"),
    )


def _number(value: Optional[float], form: str) -> str:
    return _ABSENT if value is None else format(value, form)


def text_table(results: Sequence[Result]) -> str:
    """The table for a terminal: first column left, numbers right."""
    cells = rows(results)
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADER))]
    lines = []
    for row in cells:
        line = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(line).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def markdown_table(cells: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is its header, numbers are to the right."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in cells]
    rule = ["---", *("---:" for _ in escaped[0][1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [escaped[0], rule, *escaped[1:]])


def notes(report: Report) -> list[str]:
    """What the reader needs to read the table, one sentence each; then the remarks that single rows call for."""
    margin = f"{100 * FAILED_TO_LEARN_MARGIN:.0f} %"
    lines = [
        f"Diverged: the loss was not finite, or the last valid loss is not at least {margin} below "
        f"{report.unigram_entropy:.2f} bits, the loss of knowing the frequency of each token and nothing else.",
        "Valid loss: negative log-likelihood in bits per target token, last checkpoint. Tokens/s: target tokens in "
        "training, median over the log's intervals.",
    ]
    signatures = sorted({result.signature for result in report.results if result.signature})
    lines += [f"BLEU: sacreBLEU {signature}" for signature in signatures]
    lines += [f"{result.method} failed: {result.failed}" for result in report.results if result.failed]
    lines += [f"{result.method} diverged: {result.verdict}." for result in report.results if result.diverged]
    if any(result.method == "post_ln" and result.diverged is False for result in report.results):
        lines.append("post_ln did not fail to train at this size and budget.")
    return lines


def sample_indices(count: int) -> list[int]:
    """Test sentences shown as samples: evenly spread, not chosen."""
    shown = min(NUM_SAMPLES, count)
    return [place * count // shown for place in range(shown)]


def samples(report: Report) -> list[list[tuple[str, str]]]:
    """For each sample: its source, its reference and what each method made of it, as (name, text)."""
    blocks = []
    for index in sample_indices(len(report.sources)):
        block = [("source", report.sources[index]), ("reference", report.references[index])]
        block += [(result.method, result.hypotheses[index]) for result in report.results if result.hypotheses]
        blocks.append(block)
    return blocks


def markdown(report: Report) -> str:
    """The whole report as Markdown."""
    parts = [f"# {report.title}", markdown_table(rows(report.results))]
    parts.append("\n".join(f"- {line}" for line in notes(report)))
    parts.append("![Loss against updates](curves.png)")
    parts.append("## Ten translations" if len(report.sources) >= NUM_SAMPLES else "## Translations")
    for block in samples(report):
        parts.append(markdown_table([("", "text"), *block]).replace("---:", "---"))
    parts.append("## Settings")
    parts.append("```json\n" + json.dumps(report.settings, indent=1, sort_keys=True) + "\n```")
    commands = [result.command for result in report.results if result.command]
    if commands:
        parts.append("Training commands, in the directory of this report:\n\n```\n" + "\n".join(commands) + "\n```")
    return "\n\n".join(parts) + "\n"


def as_json(report: Report) -> str:
    """The report's numbers; translations are in files of their own."""
    content = asdict(report)
    del content["sources"], content["references"]
    for result in content["results"]:
        del result["hypotheses"]
    return json.dumps(_without_nan(content), indent=1, allow_nan=False) + "\n"


def _without_nan(content: Any) -> Any:
    """JSON has no number for what is not finite: it becomes null."""
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def draw_curves(report: Report, path: Path) -> bool:
    """Draw valid and training loss against updates; False where matplotlib is not installed.

    Told apart without colour: each method has its own line style and marker.
    """
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(12, 5), sharey=True, layout="constrained")
    for axis, curve, title in zip(axes, ("valid_curve", "train_curve"), ("validation", "training"), strict=True):
        for result, (style, marker, colour) in zip(report.results, cycle(_LOOKS), strict=False):
            points = sorted(getattr(result, curve).items())
            if points:
                axis.plot(*zip(*points, strict=True), linestyle=style, marker=marker, color=colour, markersize=5,
                          label=result.method, markevery=max(1, len(points) // 10))  # fmt: skip
        axis.axhline(report.unigram_entropy, color="0.4", linestyle=(0, (6, 4)), linewidth=1, label="unigram entropy")
        axis.set(title=f"{title} loss", xlabel="updates")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("negative log-likelihood (bits per target token)")
    axes[1].legend()
    partial = path.with_name(path.name + ".partial")
    figure.savefig(partial, dpi=130, format="png")
    pyplot.close(figure)
    partial.replace(path)
    return True


def write_report(report: Report, directory: Path) -> bool:
    """Write ``report.md``, ``results.json`` and ``curves.png``; False if the picture could not be drawn."""
    write_whole(directory / "results.json", as_json(report))
    drawn = draw_curves(report, directory / "curves.png")
    text = markdown(report)
    write_whole(directory / "report.md", text if drawn else text.replace("![Loss against updates](curves.png)\n\n", ""))
    return drawn
