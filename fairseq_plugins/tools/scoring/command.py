"""``fairseq-deep score``: scores of translations, each with its signature, and significance of differences.

  fairseq-deep score HYP REF [REF ...]
  fairseq-deep score --systems NAME=HYP ... --references REF [REF ...]

HYP and REF are UTF-8 files with one sentence a line, detokenised and as published. Several runs (seeds) of one system:
NAME=HYP1,HYP2,HYP3, or NAME several times. Systems are compared with the first one.
"""

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.files import require_no_input, write_whole
from fairseq_plugins.lines import read_lines
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.process import exit_code
from fairseq_plugins.tools.scoring.metrics import METRICS, metric_names
from fairseq_plugins.tools.scoring.scores import Scores, score
from fairseq_plugins.tools.scoring.significance import FEWEST_SENTENCES, compare
from fairseq_plugins.tools.scoring.tables import as_json, as_text


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``fairseq-deep score``; returns 0, or 2 after one line per problem. Warnings go to standard error."""
    flags = OneLineParser(
        prog="fairseq-deep score",
        description=__doc__.replace("``", ""),
        usage="fairseq-deep score HYP REF [REF ...] | --systems NAME=HYP ... --references REF ...",
    )
    add = flags.add_argument
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
    pair = "such as en-de; selects the Moses tokeniser and enables compound splitting"
    metrics = f"default: all translation metrics. Legal: {', '.join(METRICS)}"
    output = "write the table to FILE, as JSON if it ends in .json; can be repeated"
    add("files", nargs="*", metavar="HYP REF", help="the translations of one system, then references")
    add("--systems", **several, metavar="NAME=HYP[,HYP...]", help="several systems")
    add("--references", **several, type=Path, metavar="REF", help="references for --systems")
    add("--language-pair", metavar="SRC-TGT", help=pair)
    add("--lower-case", action="store_true", help="lower-case both sides, as in the tables of IWSLT'14")
    add("--metrics", type=metric_names, metavar="A,B,...", help=metrics)
    add("--baseline", metavar="NAME", help="system that the others are compared with; default: the first")
    add("--output", type=Path, action="append", default=[], metavar="FILE", help=output)
    # Log lines of sacreBLEU and rouge-score are not meant for users of this command.
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    logging.getLogger("absl").setLevel(logging.ERROR)
    return exit_code(lambda: _score(flags.read(argv)))


def _score(args: argparse.Namespace) -> None:
    systems, references = _files(args)
    if args.baseline not in (None, *systems):
        raise UserError(unknown_name("--baseline", args.baseline, systems))
    for path in args.output:
        require_no_input(path, [*references, *chain(*systems.values())])
    scores = score(
        {name: [list(read_lines(file)) for file in files] for name, files in systems.items()},
        [list(read_lines(file)) for file in references],
        language_pair=args.language_pair,
        metrics=args.metrics and args.metrics.split(","),
        lower_case=args.lower_case,
    )
    if len(systems) > 1:
        scores = _compared(scores, args)
    for warning in scores.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if not args.output:
        print(as_text(scores), end="")
    for path in args.output:
        write_whole(path, as_json(scores) if path.suffix == ".json" else as_text(scores), follow=True)


def _compared(scores: Scores, args: argparse.Namespace) -> Scores:
    """Add the tests on one of the scores, and a warning about too few sentences; or a remark where none has tests."""
    metric = next((metric for metric in scores.metrics if metric.sacre), None)
    if metric is None:
        return replace(scores, remarks=(*scores.remarks, "not compared: sacreBLEU tests none of these scores"))
    text = scores.test_set.text(metric.reads)
    comparisons = compare(
        text.systems, text.references, metric=metric, baseline=args.baseline, lower_case=args.lower_case
    )
    count, warnings = len(text.references[0]), scores.warnings
    if count < FEWEST_SENTENCES:
        warnings += (f"{count} sentences are too few for paired tests",)
    return replace(scores, significance=comparisons, warnings=warnings)


def _files(args: argparse.Namespace) -> tuple[Mapping[str, Sequence[Path]], list[Path]]:
    """Return the files of each system, one for each of its runs, and the references."""
    if not args.files and args.systems and args.references:
        systems: dict[str, list[Path]] = {}
        for argument in args.systems:
            name, _, files = argument.partition("=")
            if not name or not files:
                raise UserError(f"--systems {argument}: must be NAME=HYP or NAME=HYP1,HYP2,...")
            systems.setdefault(name, []).extend(map(Path, files.split(",")))
        return systems, args.references
    if args.systems or args.references or len(args.files) < 2:
        raise UserError("which files? Give HYP REF [REF ...], or --systems NAME=HYP ... --references REF ...")
    hypotheses, *references = map(Path, args.files)
    return {hypotheses.name: [hypotheses]}, references
