"""``fairseq-deep score``: scores of translations, each with its signature, and significance of differences.

  fairseq-deep score HYP REF [REF ...]
  fairseq-deep score --systems NAME=HYP ... --references REF [REF ...]

HYP and REF are UTF-8 files with one sentence a line, detokenised and as published. Several runs (seeds) of one system:
NAME=HYP1,HYP2,HYP3, or NAME several times. Systems are compared with the first one.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.files import require_no_input, write_whole
from fairseq_plugins.options import OneLineParser, at_least
from fairseq_plugins.process import exit_code
from fairseq_plugins.scoring.metrics import METRICS, TASKS, metric_named
from fairseq_plugins.scoring.scores import Scores, score_test_set
from fairseq_plugins.scoring.significance import FEWEST_SENTENCES, TESTS, compare
from fairseq_plugins.scoring.tables import FORMATS, SUFFIXES
from fairseq_plugins.scoring.text import Forms, Text, read_sentences, require_equal_counts

STOCK_FLAGS = ("-s", "--sys", "-r", "--ref", "-o", "--order", "--ignore-case", "--sacrebleu", "--sentence-bleu")
"""Options of ``fairseq-score``."""


def parser() -> OneLineParser:
    """Return the parser of ``fairseq-deep score``."""
    flags = OneLineParser(
        prog="fairseq-deep score",
        description=__doc__.replace("``", ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="fairseq-deep score HYP REF [REF ...] | --systems NAME=HYP ... --references REF ...",
    )
    flags.add_argument("files", nargs="*", metavar="HYP REF", help="the translations of one system, then references")
    text = flags.add_argument_group("text")
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
    text.add_argument("--systems", **several, metavar="NAME=HYP[,HYP...]", help="several systems")
    text.add_argument("--references", **several, type=Path, metavar="REF")
    text.add_argument(
        "--tokenised-hypotheses",
        **several,
        metavar="[NAME=]HYP",
        help="the same translations in Moses tokens, subwords joined",
    )
    text.add_argument(
        "--tokenised-references",
        **several,
        type=Path,
        metavar="REF",
        help="the same references in Moses tokens; default: sacremoses makes both",
    )
    text.add_argument("--language-pair", metavar="SRC-TGT", help="as en-de; needed to tokenise and to split compounds")
    text.add_argument("--lower-case", action="store_true", help="lower-case both sides, as IWSLT'14 tables do")
    scores = flags.add_argument_group("scores")
    tasks = f"{', '.join(TASKS)}; default: translation"
    scores.add_argument("--task", choices=TASKS, default="translation", metavar="TASK", help=tasks)
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
    formats = f"{', '.join(FORMATS)}; default: by the ending of --output, else text"
    output.add_argument("--format", choices=FORMATS, metavar="FORMAT", help=formats)
    output.add_argument(
        "--output",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help=f"write there ({', '.join(SUFFIXES)}); several times for several formats",
    )
    return flags


def _add_comparison_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--baseline", metavar="NAME", help="the system the others are compared with; default: the first")
    legal = (*TESTS, "both", "none")
    tests = f"{', '.join(legal)}; default: both"
    group.add_argument("--significance", choices=legal, default="both", metavar="TEST", help=tests)
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``fairseq-deep score``; returns 0, or 2 after one line per problem. Warnings go to standard error."""
    # Log lines of sacreBLEU and rouge-score are not meant for users of this command.
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    logging.getLogger("absl").setLevel(logging.ERROR)
    return exit_code(lambda: _score(parse(sys.argv[1:] if argv is None else argv)))


def _score(args: argparse.Namespace) -> None:
    formats = {path: args.format or SUFFIXES.get(path.suffix) for path in args.output}
    systems, references = _files(args)
    tokenised = _tokenised_files(args, systems)
    inputs = [*references, *args.tokenised_references, *(path for paths in systems.values() for path in paths)]
    inputs += [path for paths in tokenised.values() for path in paths]
    for path, form in formats.items():
        if form is None:
            raise UserError(f"--output {path}: use --format, or a name that ends in one of: {', '.join(SUFFIXES)}")
        require_no_input(path, inputs)
    plain = _read(systems, references)
    tokens = _read(tokenised, args.tokenised_references) if tokenised else None
    scores = scores_of(Forms(plain, tokens, args.language_pair), args)
    for warning in scores.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if not args.output:
        print(FORMATS[args.format or "text"](scores), end="")
    for path, form in formats.items():
        try:
            write_whole(path, FORMATS[str(form)](scores))
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}") from error


def scores_of(test_set: Forms, args: argparse.Namespace) -> Scores:
    """Score a test set and compare its systems, according to the flags.

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
    metric = next((metric for metric in scores.metrics if metric.paired), None)
    if args.significance_metric is not None:
        metric = metric_named(args.significance_metric)
    if args.significance == "none" or metric is None or len(scores.systems) == 1:
        return scores
    text = test_set.text(metric.reads)
    comparisons = compare(
        text.systems,
        text.references,
        metric=metric,
        baseline=args.baseline,
        tests=tuple(TESTS) if args.significance == "both" else (args.significance,),
        seed=args.seed,
        samples={test: getattr(args, f"{test}_samples") for test in TESTS},
        lower_case=args.lower_case,
    )
    few = f"{scores.sentences} sentences are too few for paired tests"
    warnings = (*scores.warnings, few) if scores.sentences < FEWEST_SENTENCES else scores.warnings
    return replace(scores, significance=comparisons, warnings=warnings)


def _files(args: argparse.Namespace) -> tuple[dict[str, list[Path]], list[Path]]:
    """Return the files of each system, and the references.

    Raises:
        UserError: both ways to name files are mixed, or one is incomplete.
    """
    by_flags = bool(args.systems or args.references)
    if by_flags == bool(args.files):
        way = "files in more than one way" if by_flags else "no files"
        raise UserError(f"{way}: give HYP REF, or --systems NAME=HYP ... --references REF ...")
    if by_flags:
        if not (args.systems and args.references):
            raise UserError("--systems and --references must be used together")
        return systems_of(args.systems), args.references
    hypotheses, *references = map(Path, args.files)
    if not references:
        raise UserError(f"{hypotheses}: no reference given: fairseq-deep score HYP REF")
    return {hypotheses.name: [hypotheses]}, references


def _tokenised_files(args: argparse.Namespace, systems: Mapping[str, Sequence[Path]]) -> dict[str, list[Path]]:
    hypotheses = args.tokenised_hypotheses
    if bool(hypotheses) != bool(args.tokenised_references):
        raise UserError(
            "--tokenised-hypotheses and --tokenised-references must be used together: one tokeniser must make both"
        )
    if len(systems) > 1 or any("=" in argument and not Path(argument).exists() for argument in hypotheses):
        return systems_of(hypotheses)
    return {next(iter(systems)): [Path(file) for file in hypotheses]} if hypotheses else {}


def systems_of(arguments: Sequence[str]) -> dict[str, list[Path]]:
    """Read ``NAME=HYP[,HYP...]`` as the files of every system; without ``NAME=`` the file's name is the system's."""
    systems: dict[str, list[Path]] = {}
    for argument in arguments:
        name, equals, files = argument.partition("=")
        if not equals or Path(argument).exists():
            name, files = Path(argument).name, argument
        if not name or not files:
            raise UserError(f"--systems {argument}: must be NAME=HYP or NAME=HYP1,HYP2,...")
        whole = Path(files).exists()
        systems.setdefault(name, []).extend([Path(files)] if whole else [Path(file) for file in files.split(",")])
    return systems


def _read(systems: Mapping[str, Sequence[Path]], references: Sequence[Path]) -> Text:
    """Read all files, and refuse unequal counts by the names of the files rather than of the systems."""
    paths = [*(path for files in systems.values() for path in files), *reversed(references)]
    sentences: dict[Path, list[str]] = {}
    problems: list[str] = []
    for path in dict.fromkeys(paths):
        try:
            sentences[path] = read_sentences(path)
        except UserError as error:
            problems.extend(error.problems)
    if problems:
        raise UserError(problems)
    require_equal_counts({str(path): lines for path, lines in sentences.items()})
    return Text(
        {name: [sentences[path] for path in files] for name, files in systems.items()},
        [sentences[path] for path in references],
    )
