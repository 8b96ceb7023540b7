"""``fairseq-deep diagnose``: the papers' analyses of any method at any size, or of a checkpoint."""

import argparse
import logging
import shlex
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.checkpoints.fold import made_up_task
from fairseq_plugins.core.model import DeepTransformerModel
from fairseq_plugins.errors import UserError, flag, unknown_name
from fairseq_plugins.files import require_no_input
from fairseq_plugins.options import OneLineParser, at_least
from fairseq_plugins.process import exit_code
from fairseq_plugins.tables import tabulated
from fairseq_plugins.tools import plots
from fairseq_plugins.tools.observe.diagnostics import (
    blocks,
    dependency,
    gradients,
    jacobian,
    output_change,
    papers,
    scales,
    similarity,
    timeline,
    updates,
)
from fairseq_plugins.tools.observe.diagnostics.batches import Batch, read_data, zipf_batch
from fairseq_plugins.tools.observe.diagnostics.models import Subject, of_checkpoint, of_options
from fairseq_plugins.tools.observe.diagnostics.results import Analysis, AnalysisSettings, shown, write_table

# A new analysis is a file with an ANALYSIS and its name here, in the order of --help and of `all`.
MODULES = (gradients, blocks, dependency, output_change, jacobian, similarity, scales, updates)
OF_MODELS: tuple[Analysis, ...] = tuple(module.ANALYSIS for module in MODULES)
OF_TRAININGS = timeline.ANALYSIS
EVERYTHING = "all"
NAMES = [*(analysis.name for analysis in (*OF_MODELS, OF_TRAININGS)), EVERYTHING]
"""Legal values of ANALYSIS."""
DEFAULT_METHODS = ("post_ln", "pre_ln", "admin")
"""Methods that are compared by default."""
WORDS = 10_000
PAPERS_OWN = ("paper", "output", "seed")
"""Options that can be combined with ``--paper``."""


def parser() -> tuple[OneLineParser, list[argparse.Action]]:
    """Return the parser, and the flags that are not the model's; those of the model have no help text."""
    every = (*OF_MODELS, OF_TRAININGS)
    lines = [f"  {analysis.name:<17}{analysis.summary} [{analysis.paper}]" for analysis in every]
    figures = [f"  {name:<17}{'; '.join(figure.shows for figure in own)}" for name, own in papers.PAPERS.items()]
    result = OneLineParser(
        prog="fairseq-deep diagnose",
        usage="fairseq-deep diagnose ANALYSIS [METHOD ...] [OPTION ...] [MODEL FLAG ...]",
        description="Analyse the residual stream and the gradients of a new model (on a CPU) or of a checkpoint."
        "\n\nanalyses:\n"
        + "\n".join(lines)
        + f"\n  {EVERYTHING:<17}every analysis except timeline, or the figures of --paper"
        "\n\npapers:\n" + "\n".join(figures),
        epilog="All model flags are accepted: --encoder-layers 18 --dropout 0.3 --base-init xavier ...\n"
        "(fairseq-deep train --arch admin_transformer --help lists them). They apply to every method.",
    )
    add = result.add_argument
    add("analysis", metavar="ANALYSIS", nargs="?", help="one of the above")
    add(
        "methods",
        metavar="METHOD",
        nargs="*",
        help=f"methods or architectures, side by side (default: {' '.join(DEFAULT_METHODS)}). "
        f"For '{OF_TRAININGS.name}': trainings, each a recorder.jsonl or a directory of such files",
    )
    add("--checkpoint", type=Path, nargs="+", default=[], metavar="FILE", help="trained models of this package")
    add("--paper", metavar="PAPER", help="with 'all': regenerate the figures of this paper that need no training")
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="measure with validation sentences of a binarised corpus "
        "(default: made-up words with the frequencies of natural text)",
    )
    add("--output", type=Path, default=Path("diagnosis"), metavar="DIR", help="output directory")
    add("--sentences", type=at_least(1), metavar="N", help="sentences in the batch (default: depends on the analysis)")
    add("--length", type=at_least(1), metavar="N", help="tokens per sentence; with --data: maximum length")
    add("--seed", type=int, default=1, metavar="N", help="seed of weights, dropout and words")
    for analysis in OF_MODELS:
        for name, option in analysis.options.items():
            add(flag(name), **{**option, "help": f"{analysis.name}: {option['help']} "})
    own = list(result._actions)
    group = result.add_argument_group("model")
    flags = argparse.ArgumentParser(add_help=False)
    DeepTransformerModel.add_args(flags)
    for action in flags._actions:
        action.help = argparse.SUPPRESS
        group._add_action(action)
    return result, own


def parse(argv: Sequence[str]) -> tuple[Namespace, Namespace]:
    """Return our own options, and those of the model that were set.

    Raises UserError: no analysis; an unknown flag, with the nearest one; an illegal value.
    """
    flags, actions = parser()
    values = vars(flags.read(argv))
    if values["analysis"] is None:
        raise UserError(f"no analysis given: name one of {', '.join(NAMES)}")
    own = {action.dest: values.pop(action.dest) for action in actions if action.dest in values}
    return Namespace(**own), Namespace(**values)


class Job(NamedTuple):
    """One analysis of some models or trainings; for the figure of a paper it has that name."""

    analysis: Analysis
    subjects: Any
    settings: AnalysisSettings
    options: Mapping[str, Any]


def jobs(args: Namespace, model: Namespace) -> list[Job]:
    """Return the jobs of the command line.

    Raises UserError: an unknown analysis, method, paper or checkpoint, or a combination that is not supported.
    """
    if args.paper is not None:
        return _paper_jobs(args, model)
    chosen = [analysis for analysis in OF_MODELS if args.analysis in (analysis.name, EVERYTHING)]
    of_trainings = args.analysis == OF_TRAININGS.name
    if not chosen and not of_trainings:
        raise UserError(unknown_name("analysis", args.analysis, NAMES))
    if of_trainings and (args.checkpoint or args.data):
        raise UserError(f"{args.analysis} reads the files of a recorder: no --checkpoint and no --data")
    given = _given(args, model, (args.analysis,))
    unread = [name for name in given if name in vars(model)]
    if unread and (of_trainings or (args.checkpoint and not args.methods)):
        names = ", ".join(map(flag, unread))
        raise UserError(f"{names}: a trained model has its own settings; these options are for methods")
    if of_trainings:
        past = timeline.read_trainings([Path(name) for name in args.methods])
        return [_job(OF_TRAININGS, past, args)]
    task, make = read_data(args.data) if args.data else (made_up_task(WORDS, WORDS), None)
    methods = args.methods or ([] if args.checkpoint else DEFAULT_METHODS)
    subjects = [of_options(name, model, task) for name in dict.fromkeys(methods)]
    subjects += [of_checkpoint(path, task if args.data else None) for path in args.checkpoint]
    labels = [subject.label for subject in subjects]
    for place, label in enumerate(labels):
        if labels.count(label) > 1:
            subjects[place] = replace(subjects[place], label=f"{label} ({place + 1})")
    return [_job(analysis, subjects, args, make) for analysis in chosen]


def _paper_jobs(args: Namespace, model: Namespace) -> list[Job]:
    """Return the jobs of a paper's figures; refuses options that the figures define."""
    if args.analysis != EVERYTHING:
        raise UserError(f"--paper needs 'all', not '{args.analysis}'")
    if args.paper not in papers.PAPERS:
        raise UserError(unknown_name("paper", args.paper, papers.PAPERS))
    if given := [name for name in _given(args, model, (EVERYTHING,)) if name not in PAPERS_OWN]:
        raise UserError(f"--paper defines what is measured: drop {', '.join(map(flag, given))}")
    result = []
    by_name = {analysis.name: analysis for analysis in OF_MODELS}
    for figure in papers.PAPERS[args.paper]:
        subjects = []
        for member in figure.models:
            own, options = parse([figure.analysis, *shlex.split(figure.flags), *shlex.split(member.flags)])
            subjects.append(of_options(member.method, options, made_up_task(WORDS, WORDS), member.label))
        own.seed = args.seed
        analysis = replace(by_name[figure.analysis], name=figure.name, paper=figure.shows)
        result.append(_job(analysis, subjects, own))
    return result


def _given(args: Namespace, model: Namespace, words: Sequence[str]) -> list[str]:
    """Return the names of the options that differ from those of a command line that has only ``words``."""
    default = {name: value for part in parse(words) for name, value in vars(part).items()}
    return [name for part in (args, model) for name, value in sorted(vars(part).items()) if value != default.get(name)]


def _job(analysis: Analysis, subjects: Any, args: Namespace, make: Callable[[int, int], Batch] | None = None) -> Job:
    """Return a job, with the analysis's default sizes if unset; ``make`` makes sentences of a corpus."""
    sentences, length = args.sentences or analysis.sentences, args.length or analysis.length

    def batch(subject: Subject) -> Batch:
        pairs = make(sentences, length) if make else zipf_batch(subject.task, sentences, length, args.seed)
        return subject.reads(pairs, args.seed)

    options = {name: getattr(args, name) for name in analysis.options}
    return Job(analysis, subjects, AnalysisSettings(batch, args.seed), options)


def run(job: Job, directory: Path, inputs: Collection[Path] = ()) -> None:
    """Measure, print, and write into ``directory``, the numbers before the plots.

    Raises UserError: nothing can be measured, or one of the files ``inputs`` would be overwritten.
    """
    result = job.analysis.run(job.subjects, job.settings, **job.options)
    tables = {directory / f"{job.analysis.name}{end}.csv": table for end, table in result.tables.items()}
    figures = [replace(figure, name=job.analysis.name + figure.name) for figure in result.figures]
    print(f"{job.analysis.name}: {job.analysis.summary} [{job.analysis.paper}]")
    cells = [[*result.header], *([shown(cell) for cell in row] for row in result.rows)]
    print(tabulated(cells), *result.notes, sep="\n")
    plotted = [directory / f"{figure.name}.{ending}" for figure in figures for ending in ("png", "pdf")]
    for path in (*tables, *plotted):
        require_no_input(path, inputs)
    for path, table in tables.items():
        write_table(path, table)
    files = [*tables]
    if plots.load_pyplot():
        files += [path for figure in figures for path in plots.draw(figure, directory)]
    print(f"files: {', '.join(path.name for path in files)}\n", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``fairseq-deep diagnose``; returns 0, or 2 after one line per problem."""
    before = logging.root.manager.disable
    # The logs of fairseq and of the calibration would go to the same stream as the result.
    logging.disable(logging.INFO)
    try:
        return exit_code(lambda: diagnose(list(sys.argv[1:] if argv is None else argv)))
    finally:
        logging.disable(before)


def diagnose(argv: Sequence[str]) -> int:
    """Run the command; raises mistakes instead of printing them."""
    args, model = parse(argv)
    todo = jobs(args, model)
    # Before anything is measured, which may take minutes.
    try:
        args.output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=args.output):
            pass
    except OSError as error:
        raise UserError(f"--output {args.output}: cannot be written: {error.strerror}") from error
    inputs = [*args.checkpoint, *(Path(name) for name in args.methods if Path(name).is_file())]
    refused: list[str] = []
    for job in todo:
        try:
            run(job, args.output, inputs)
        except UserError as error:
            refused += error.problems
    if not plots.load_pyplot():
        print(plots.NO_MATPLOTLIB, file=sys.stderr)
    if refused:
        raise UserError(refused)
    print(f"written to {args.output}")
    return 0
