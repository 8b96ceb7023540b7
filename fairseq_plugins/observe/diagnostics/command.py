"""``fairseq-deep diagnose``: the papers' analyses of any method at any size, or of a checkpoint."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import shlex
import sys
import tempfile
import warnings
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary

from fairseq_plugins import plots
from fairseq_plugins.errors import UserError, nearest
from fairseq_plugins.observe.diagnostics import analyses, papers, trainings
from fairseq_plugins.observe.diagnostics.batches import Batch, made_up_task, read_data, zipf_batch
from fairseq_plugins.observe.diagnostics.models import (
    Subject,
    find_architecture,
    model_flags,
    of_checkpoint,
    of_options,
)
from fairseq_plugins.observe.diagnostics.results import Analysis, Settings
from fairseq_plugins.observe.diagnostics.trainings import Training
from fairseq_plugins.options import IntermixedParser, at_least
from fairseq_plugins.process import exit_code
from fairseq_plugins.tables import tabulated

EVERYTHING = "all"
DEFAULT_METHODS = ("post_ln", "pre_ln", "admin")
"""Methods that are compared by default."""
WORDS = 10_000
PAPERS_OWN = ("analysis", "paper", "output", "seed")
"""Options that can be combined with ``--paper``."""
Make = Callable[[int, int], Batch]
"""Function of the number of sentences and their length."""


def parser() -> tuple[IntermixedParser, list[argparse.Action]]:
    """Return the parser, and the flags that are not the model's; those of the model have no help text."""
    lines = [f"  {analysis.name:<17}{analysis.summary} [{analysis.paper}]" for analysis in analyses.REGISTRY]
    what = ", ".join(f"'{analysis.name}'" for analysis in analyses.REGISTRY if analysis.of == "trainings")
    figures = [f"  {name:<17}{'; '.join(figure.shows for figure in own)}" for name, own in papers.PAPERS.items()]
    result = IntermixedParser(
        prog="fairseq-deep diagnose",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="fairseq-deep diagnose ANALYSIS [METHOD ...] [OPTION ...] [MODEL FLAG ...]",
        description="What a model does to its stream and its gradients, from a new model on a CPU or from a checkpoint."
        "\n\nanalyses:\n" + "\n".join(lines) + f"\n  {EVERYTHING:<17}all but the last, or the figures of --paper"
        "\n\npapers:\n" + "\n".join(figures),
        epilog="Every flag of the model may follow: --encoder-layers 18 --dropout 0.3 --base-init xavier ...\n"
        "(fairseq-deep train --arch admin_transformer --help lists them). They apply to every method.",
    )
    add = result.add_argument
    add("analysis", metavar="ANALYSIS", nargs="?", help="one of the above")
    add(
        "methods",
        metavar="METHOD",
        nargs="*",
        help="methods or architectures, side by side; "
        "METHOD:SETTING=VALUE gives one a setting of its own, b2t:b2t_init_scale=layers for instance"
        f" (default: {' '.join(DEFAULT_METHODS)}). For {what}: trainings, each a recorder.jsonl, or a "
        "directory with one or with checkpoints",
    )
    add(
        "--checkpoint",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help=f"trained models of this package; for {what} of one training",
    )
    add("--paper", metavar="PAPER", help="with 'all': regenerate its figures that need no training")
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="measure with validation sentences of a binarised corpus "
        "(default: made-up words with the frequencies of natural text)",
    )
    add("--output", type=Path, default=Path("diagnosis"), metavar="DIR", help="where files go (default: diagnosis)")
    add("--sentences", type=at_least(1), metavar="N", help="sentences in the batch (default: the analysis's)")
    add("--length", type=at_least(1), metavar="N", help="tokens of a sentence, or of the longest of the corpus")
    add(
        "--vocabulary",
        type=at_least(Dictionary().nspecial + 1),
        metavar="N",
        help=f"made-up words, among them fairseq's {Dictionary().nspecial} special symbols (default: {WORDS})",
    )
    add("--seed", type=int, default=1, metavar="N", help="of weights, dropout and words (default: 1)")
    for analysis in analyses.REGISTRY:
        for option in analysis.options:
            add(
                f"--{option.name.replace('_', '-')}",
                type=option.type,
                default=option.default,
                metavar=option.metavar,
                help=f"{analysis.name}: {option.help} (default: {option.default})",
            )
    own = list(result._actions)
    group = result.add_argument_group("model")
    for action in model_flags()._actions:
        action.help = argparse.SUPPRESS
        group._add_action(action)
    return result, own


def parse(argv: Sequence[str]) -> tuple[Namespace, Namespace]:
    """Return our own options, and those of the model that were set.

    Raises:
        UserError: an unknown flag, with the nearest one; an illegal value.
    """
    flags, actions = parser()
    values = vars(flags.read(argv))
    own = {action.dest: values.pop(action.dest) for action in actions if action.dest in values}
    return Namespace(**own), Namespace(**values)


@dataclasses.dataclass(frozen=True)
class Job:
    """One analysis of some models or trainings; its files are named after ``prefix`` if that is set."""

    analysis: Analysis
    subjects: Sequence[Subject] | Sequence[Training]
    settings: Settings
    options: Mapping[str, Any]
    prefix: str = ""
    shows: str = ""


def jobs(args: Namespace, model: Namespace) -> list[Job]:
    """Return the jobs of the command line.

    Raises:
        UserError: an unknown analysis, method, paper or checkpoint, or a combination that is not supported.
    """
    if args.analysis is None:
        known = ", ".join([*analyses.BY_NAME, EVERYTHING])
        raise UserError(f"no analysis given; one of: {known} (fairseq-deep diagnose --help)")
    if args.paper is not None:
        return _paper_jobs(args, model)
    chosen = analyses.OF_MODELS if args.analysis == EVERYTHING else (analyses.find(args.analysis),)
    of_trainings = chosen[0].of == "trainings"
    _refuse_unread_settings(args, model, of_trainings or bool(args.checkpoint and not args.methods))
    words = args.vocabulary or WORDS
    task, make = read_data(args.data) if args.data else (made_up_task(words, words), None)
    own_task = task if args.data else None
    if of_trainings:
        past = trainings.find([Path(name) for name in args.methods], args.checkpoint, own_task)
        return [_job(chosen[0], past, args, make)]
    names = args.methods or ([] if args.checkpoint else DEFAULT_METHODS)
    subjects = [_of_method(name, model, task) for name in dict.fromkeys(names)]
    subjects += [of_checkpoint(path, own_task) for path in args.checkpoint]
    labels = [subject.label for subject in subjects]
    for place, label in enumerate(labels):
        if labels.count(label) > 1:
            subjects[place] = dataclasses.replace(subjects[place], label=f"{label} ({place + 1})")
    return [_job(analysis, subjects, args, make) for analysis in chosen]


def _paper_jobs(args: Namespace, model: Namespace) -> list[Job]:
    """Return the jobs of a paper's figures.

    Raises:
        UserError: an unknown paper, or the user sets what its figures define.
    """
    if args.analysis != EVERYTHING:
        raise UserError(f"--paper needs 'all', not '{args.analysis}'")
    given = [
        (action.option_strings or ["methods"])[-1]
        for action in parser()[1]
        if action.dest in vars(args) and action.dest not in PAPERS_OWN
        if (getattr(args, action.dest) or None) != (action.default or None)
    ]
    if given := given + _given(model):
        raise UserError(f"--paper defines what is measured: drop {', '.join(given)}")
    made = []
    for figure in papers.find(args.paper):
        subjects = []
        for member in figure.models:
            own, options = parse([figure.analysis, *shlex.split(figure.flags), *shlex.split(member.flags)])
            subjects.append(of_options(member.method, options, made_up_task(WORDS, WORDS), member.label))
        own.seed = args.seed
        made.append(_job(analyses.find(figure.analysis), subjects, own, prefix=figure.name, shows=figure.shows))
    return made


def _given(model: Namespace) -> list[str]:
    """Return the flags of a model that the user has set."""
    # A flag without a value is False if unset; 0 is set.
    given = [name for name, value in sorted(vars(model).items()) if value is not None and value is not False]
    return [f"--{name.replace('_', '-')}" for name in given]


def _refuse_unread_settings(args: Namespace, model: Namespace, only_trained: bool) -> None:
    """Refuse settings of a model, or of made-up words, if no method would read them.

    Raises:
        UserError: there are some.
    """
    if only_trained and (given := _given(model)):
        raise UserError(f"{', '.join(given)}: a trained model has its own settings; these options are for methods")
    if args.vocabulary is not None and (only_trained or args.data):
        whose = "a corpus" if args.data else "a trained model"
        raise UserError(f"--vocabulary: {whose} has its own words; this option is for methods and made-up words")


def _of_method(text: str, given: Namespace, task: Any) -> Subject:
    """Return a method, with its own settings if it is written ``METHOD:SETTING=VALUE:...``."""
    name, *settings = text.split(":")
    find_architecture(name)
    flags = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or key.replace("-", "_") not in vars(given):
            # A list of all settings would fill a page.
            near = nearest(key.replace("-", "_"), sorted(vars(given)))
            raise UserError(f"{text}: '{setting}' is not SETTING=VALUE of a model{near}")
        flags.append(f"--{key.replace('_', '-')}={value}")
    own = {key: value for key, value in vars(parse(["-", *flags])[1]).items() if value is not None}
    return of_options(name, Namespace(**{**vars(given), **own}), task, text)


def _job(analysis: Analysis, subjects: Sequence[Any], args: Namespace, make: Make | None = None, **names: str) -> Job:
    """Return a job, with the analysis's default sizes if unset."""
    sentences, length = args.sentences or analysis.sentences, args.length or analysis.length

    def batch(subject: Subject) -> Batch:
        return make(sentences, length) if make else zipf_batch(subject.task, sentences, length, args.seed)

    def progress(text: str) -> None:
        print(f"measuring {text}", file=sys.stderr, flush=True)

    settings = Settings(batch=batch, seed=args.seed, progress=progress, made_up=make is None)
    options = {option.name: getattr(args, option.name) for option in analysis.options}
    return Job(analysis, subjects, settings, options, **names)


def run(job: Job, directory: Path, inputs: Collection[Path] = ()) -> None:
    """Measure, print, write; the numbers before the plots.

    Args:
        job: what to measure.
        directory: where to write.
        inputs: files that are read, with their full paths.

    Raises:
        UserError: nothing can be written there, or an input would be overwritten.
    """
    result = job.analysis.run(job.subjects, job.settings, **job.options)
    if job.prefix:
        own = len(result.tables[0].name)
        tables = [dataclasses.replace(table, name=job.prefix + table.name[own:]) for table in result.tables]
        figures = [dataclasses.replace(figure, name=job.prefix + figure.name[own:]) for figure in result.figures]
        result = dataclasses.replace(result, tables=tables, figures=figures)
    print(f"{job.prefix or job.analysis.name}: {job.analysis.summary} [{job.shows or job.analysis.paper}]")
    print(tabulated(result.shown), *result.notes, sep="\n")
    names = [f"{table.name}{suffix}" for table in result.tables for suffix in (".csv", ".json")]
    names += [f"{figure.name}{suffix}" for figure in result.figures for suffix in (".png", ".pdf")]
    for name in names:
        if (directory / name).resolve() in inputs:
            raise UserError(f"--output {directory}: {name} would overwrite an input; give another directory")
    about = {
        "analysis": job.analysis.name,
        "paper": job.analysis.paper,
        "shows": job.shows,
        "seed": job.settings.seed,
        job.analysis.of: [subject.about for subject in job.subjects],
    }
    with writing(directory):
        files = [path for table in result.tables for path in table.write(directory, about)]
        if plots.load_pyplot():
            files += [path for figure in result.figures for path in plots.draw(figure, directory)]
    print(f"files: {', '.join(path.name for path in files)}\n", flush=True)


@contextlib.contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Turn system errors inside into one line."""
    try:
        yield
    except OSError as error:
        raise UserError(f"--output {directory}: cannot be written: {(error.strerror or str(error)).lower()}") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``fairseq-deep diagnose``; returns 0, or 2 after one line per problem."""
    before = logging.root.manager.disable
    # The logs of fairseq and of the calibration would go to the same stream as the result.
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings():
            # fairseq passes masks of two types to torch.
            warnings.filterwarnings("ignore", message="Support for mismatched key_padding_mask")
            return exit_code(lambda: diagnose(list(sys.argv[1:] if argv is None else argv)))
    finally:
        logging.disable(before)


def diagnose(argv: Sequence[str]) -> int:
    """Run the command; raises mistakes instead of printing them."""
    args, model = parse(argv)
    todo = jobs(args, model)
    refused: list[str] = []
    recorded = [file for job in todo for past in job.subjects if isinstance(past, Training) for file in past.files]
    inputs = {path.resolve() for path in (*args.checkpoint, *recorded)}
    # Before anything is measured, which may take minutes.
    with writing(args.output):
        args.output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=args.output):
            pass
    for job in todo:
        try:
            run(job, args.output, inputs)
        except UserError as error:
            if len(todo) == 1:
                raise
            refused += error.problems
    if not plots.load_pyplot():
        print(plots.NO_MATPLOTLIB, file=sys.stderr)
    print(f"written to {args.output}")
    if refused:
        raise UserError(refused)
    return 0
