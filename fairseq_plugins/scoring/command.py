"""``fairseq-deep score``: scores of translations, each with its signature, and significance of differences.

  fairseq-deep score HYP REF [REF ...]
  fairseq-deep score --systems NAME=HYP ... --references REF [REF ...]
  fairseq-deep score --set newstest2014 HYP REF --set newstest2015 HYP REF ...

HYP and REF are UTF-8 files with one sentence a line, detokenised and as published. Several runs (seeds) of one system:
NAME=HYP1,HYP2,HYP3, or NAME several times. Systems are compared with the first one.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.files import require_no_input, write_whole
from fairseq_plugins.options import OneLineParser, at_least
from fairseq_plugins.process import exit_code
from fairseq_plugins.scoring.forms import Forms
from fairseq_plugins.scoring.inputs import files_of, sets_of
from fairseq_plugins.scoring.metrics import METRICS, TASKS, Metric, metric_named
from fairseq_plugins.scoring.scores import Scores, score_test_set
from fairseq_plugins.scoring.several_sets import average_over
from fairseq_plugins.scoring.significance import FEWEST_SENTENCES, TESTS, compare
from fairseq_plugins.scoring.tables import FORMATS, SUFFIXES, Content

STOCK_FLAGS = ("-s", "--sys", "-r", "--ref", "-o", "--order", "--ignore-case", "--sacrebleu", "--sentence-bleu")
"""Options of ``fairseq-score``."""


def parser() -> OneLineParser:
    """Return the parser of ``fairseq-deep score``."""
    flags = OneLineParser(
        prog="fairseq-deep score",
        description=__doc__.replace("``", ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="fairseq-deep score HYP REF [REF ...] | --systems NAME=HYP ... --references REF ... | --set NAME HYP REF",
    )
    flags.add_argument("files", nargs="*", metavar="HYP REF", help="the translations of one system, then references")
    text = flags.add_argument_group("text")
    text.add_argument("--systems", nargs="+", action="extend", metavar="NAME=HYP[,HYP...]", help="several systems")
    text.add_argument("--references", nargs="+", action="extend", type=Path, metavar="REF")
    text.add_argument(
        "--set",
        nargs="+",
        action="append",
        dest="sets",
        metavar="NAME",
        help="a test set: its name, HYP (or NAME=HYP ...) and REF; several for their mean",
    )
    text.add_argument(
        "--tokenised-hypotheses",
        nargs="+",
        action="extend",
        metavar="[NAME=]HYP",
        help="the same translations in Moses tokens, subwords joined",
    )
    text.add_argument(
        "--tokenised-references",
        nargs="+",
        action="extend",
        type=Path,
        metavar="REF",
        help="the same references in Moses tokens; default: sacremoses makes both",
    )
    text.add_argument("--language-pair", metavar="SRC-TGT", help="as en-de; needed to tokenise and to split compounds")
    text.add_argument("--lower-case", action="store_true", help="lower-case both sides, as IWSLT'14 tables do")
    scores = flags.add_argument_group("scores")
    scores.add_argument(
        "--task",
        choices=TASKS,
        default="translation",
        metavar="TASK",
        help=f"{', '.join(TASKS)}; default: translation",
    )
    scores.add_argument("--metrics", metavar="A,B,...", help=f"instead of those of the task: {', '.join(METRICS)}")
    scores.add_argument(
        "--confidence",
        nargs="?",
        type=at_least(1),
        const=1000,
        default=0,
        metavar="N",
        help="95 %% intervals from N bootstrap resamples (1000)",
    )
    _add_comparison_flags(flags.add_argument_group("comparison of systems"))
    output = flags.add_argument_group("output")
    output.add_argument(
        "--format",
        choices=FORMATS,
        metavar="FORMAT",
        help=f"{', '.join(FORMATS)}; default: by the ending of --output, else text",
    )
    output.add_argument(
        "--output",
        type=Path,
        action="append",
        metavar="FILE",
        help=f"write there ({', '.join(SUFFIXES)}); several times for several formats",
    )
    return flags


def _add_comparison_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--baseline", metavar="NAME", help="the system the others are compared with; default: the first")
    legal = (*TESTS, "both", "none")
    group.add_argument(
        "--significance",
        choices=legal,
        default="both",
        metavar="TEST",
        help=f"{', '.join(legal)}; default: both",
    )
    group.add_argument("--significance-metric", metavar="A", help="default: the first of the scores")
    for test, kind in TESTS.items():
        group.add_argument(
            f"--{test}-samples",
            type=at_least(1),
            default=kind.samples,
            metavar="N",
            help=f"of {kind.name}; default: {kind.samples}",
        )
    group.add_argument("--seed", type=at_least(1), metavar="N", help="default: SACREBLEU_SEED, else 12345")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse ``argv``.

    Raises:
        UserError: a flag of fairseq's own scorer, an unknown flag (with the nearest one), or an illegal value.
    """
    for argument in argv:
        if argument.partition("=")[0] in STOCK_FLAGS:
            raise UserError(
                f"{argument} is a flag of fairseq's own scorer, which is now fairseq-deep stock-score; "
                "here: fairseq-deep score HYP REF"
            )
    return parser().read(argv)


def scores_of(test_set: Forms, args: argparse.Namespace) -> Scores:
    """Score one test set and compare its systems, according to the flags.

    Raises:
        UserError: a metric cannot be computed, or ``--baseline`` names an unknown system.
    """
    names: Sequence[str] | None = None if args.task == "translation" else TASKS[args.task]
    if args.metrics is not None:
        names = [name.strip() for name in args.metrics.split(",") if name.strip()]
        if not names:
            raise UserError(f"--metrics names none; legal: {', '.join(METRICS)}")
    scores = score_test_set(test_set, names, lower_case=args.lower_case, resamples=args.confidence)
    if args.baseline is not None and args.baseline not in test_set.plain.systems:
        raise UserError(unknown_name("--baseline", args.baseline, test_set.plain.systems))
    metric = _compared(scores, args)
    if metric is None or len(scores.systems) == 1:
        return scores
    text = test_set.text(metric.reads)
    tests = tuple(TESTS) if args.significance == "both" else (args.significance,)
    comparisons = compare(
        text.systems,
        text.references,
        metric=metric,
        baseline=args.baseline,
        tests=tests,
        seed=args.seed,
        samples={test: getattr(args, f"{test}_samples") for test in TESTS},
        lower_case=args.lower_case,
    )
    few = f"{scores.sentences} sentences are too few for paired tests"
    warnings = (*scores.warnings, few) if scores.sentences < FEWEST_SENTENCES else scores.warnings
    return replace(scores, significance=comparisons, warnings=warnings)


def _compared(scores: Scores, args: argparse.Namespace) -> Metric | None:
    """Return the metric of the significance tests; None for no tests."""
    if args.significance == "none":
        return None
    if args.significance_metric is not None:
        return metric_named(args.significance_metric)
    return next((metric for metric in scores.metrics if metric.paired), None)


def write(content: Content, args: argparse.Namespace) -> None:
    """Write ``content`` to every ``--output``, or print it if there is none.

    Raises:
        UserError: the suffix of a file has no known format, or the file cannot be written.
    """
    if not args.output:
        print(FORMATS[args.format or "text"](content), end="")
        return
    for path in args.output:
        try:
            write_whole(path, FORMATS[_format_of(path, args.format)](content))
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}") from error


def _format_of(path: Path, given: str | None) -> str:
    if given is None and path.suffix not in SUFFIXES:
        raise UserError(f"--output {path}: use --format, or a name that ends in one of: {', '.join(SUFFIXES)}")
    return given or SUFFIXES[path.suffix]


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``fairseq-deep score``; returns 0, or 2 after one line per problem. Warnings go to standard error."""
    # Log lines of sacreBLEU and rouge-score are not meant for users of this command.
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    logging.getLogger("absl").setLevel(logging.ERROR)
    return exit_code(lambda: _score(parse(sys.argv[1:] if argv is None else argv)))


def _score(args: argparse.Namespace) -> None:
    for path in args.output or ():
        _format_of(path, args.format)
        require_no_input(path, files_of(args))
    scored = {name: scores_of(test_set, args) for name, test_set in sets_of(args).items()}
    for name, scores in scored.items():
        for warning in scores.warnings:
            print(f"warning: {name + ': ' if name else ''}{warning}", file=sys.stderr)
    write(scored[""] if "" in scored else average_over(scored), args)


if __name__ == "__main__":
    sys.exit(main())
