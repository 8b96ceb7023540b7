"""What the job ends in: a table, a picture of the losses, sample translations, and the numbers as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fairseq_plugins.files import write_whole
from fairseq_plugins.pipeline import pictures, tables
from fairseq_plugins.pipeline.tables import ABSENT, markdown_table, number, strict_json
from fairseq_plugins.pipeline.training_log import FAILED_TO_LEARN_MARGIN

NUM_SAMPLES = 10
NEXT_IN_README = "'From raw text to a score' in README.md"

_HEADER = ("method", "parameters", "diverged", "valid loss", "BLEU", "tokens/s")


@dataclass(frozen=True)
class Result:
    """One row: a method's training and translation; None where a step was not reached."""

    method: str
    failed: str | None = None
    """Why there is no result, with the log's path; None where the method came through."""
    parameters: int | None = None
    diverged: bool | None = None
    verdict: str = ""
    valid_loss: float | None = None
    """Negative log-likelihood of the last checkpoint on the valid set, bits per target token."""
    bleu: float | None = None
    signature: str | None = None
    tokens_per_second: float | None = None
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
        diverged = ABSENT if result.diverged is None else ("yes" if result.diverged else "no")
    return (
        result.method,
        number(result.parameters, ",d"),
        diverged,
        number(result.valid_loss, ".2f"),
        number(result.bleu, ".1f"),
        number(result.tokens_per_second, ",.0f"),
    )


def text_table(results: Sequence[Result]) -> str:
    """The table for a terminal."""
    return tables.text_table(rows(results))


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


def last_lines(report: Report, files: str, own_text: bool) -> list[str]:
    """What was seen, where ``files`` are and what to type next."""
    failed = [result.method for result in report.results if result.failed or result.diverged]
    ranked = sorted((-result.bleu, result.method) for result in report.results if result.bleu is not None)
    scores = ", ".join(f"{method} {number(-bleu, '.1f')}" for bleu, method in ranked) or "no translation"
    failures = f"{', '.join(failed)} failed to train" if failed else "every method trained"
    if own_text:
        following = f"{NEXT_IN_README}: training to convergence, on any number of GPUs"
    else:
        following = "with your own text: make demo DATA=DIR SRC=de TGT=en; DIR holds train.de, train.en, valid.de, ..."
    return [f"Seen: {failures}; BLEU: {scores}.", f"Files: {files}", f"Next: {following}"]


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
    return strict_json(content)


def draw_curves(report: Report, path: Path) -> bool:
    """Draw valid and training loss against updates; False where matplotlib is not installed.

    Told apart without colour: each method has its own line style and marker.
    """
    pyplot = pictures.load_pyplot()
    if pyplot is None:
        return False
    figure, axes = pyplot.subplots(1, 2, figsize=(12, 5), sharey=True, layout="constrained")
    for axis, curve, title in zip(axes, ("valid_curve", "train_curve"), ("validation", "training"), strict=True):
        pictures.draw_curves(axis, [pictures.Curve(result.method, getattr(result, curve)) for result in report.results])
        axis.axhline(report.unigram_entropy, color="0.4", linestyle=(0, (6, 4)), linewidth=1, label="unigram entropy")
        axis.set(title=f"{title} loss")
    axes[0].set_ylabel("negative log-likelihood (bits per target token)")
    axes[1].legend()
    pictures.save(pyplot, figure, path)
    return True


def write_report(report: Report, directory: Path) -> bool:
    """Write ``report.md``, ``results.json`` and ``curves.png``; False if the picture could not be drawn."""
    write_whole(directory / "results.json", as_json(report))
    drawn = draw_curves(report, directory / "curves.png")
    text = markdown(report)
    write_whole(directory / "report.md", text if drawn else text.replace("![Loss against updates](curves.png)\n\n", ""))
    return drawn
