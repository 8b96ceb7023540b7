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
from fairseq_plugins.observe.diagnostics import analyses, papers, tables, trainings
from fairseq_plugins.observe.diagnostics.batches import Batch, made_up_task, read_data, zipf_batch
from fairseq_plugins.observe.diagnostics.models import (
    Subject,
    find_architecture,
    model_flags,
    of_checkpoint,
    of_options,
)
from fairseq_plugins.observe.diagnostics.results import Analysis, Result, Settings
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
    lines = [f"  {one.name:<17}{one.summary} [{one.paper}]" for one in analyses.REGISTRY]
    what = ", ".join(f"'{one.name}'" for one in analyses.REGISTRY if one.of == "trainings")
    figures = [f"  {name:<17}{'; '.join(one.shows for one in some)}" for name, some in papers.PAPERS.items()]
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
    both = flags.read(argv)
    own, values = {action.dest for action in actions}, vars(both)
    return (
        Namespace(**{name: value for name, value in values.items() if name in own}),
        Namespace(**{name: value for name, value in values.items() if name not in own}),
    )


@dataclasses.dataclass(frozen=True)
class Job:
    """One analysis of some models or trainings, under the name of its files."""

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
        if args.analysis != EVERYTHING:
            raise UserError(f"--paper needs 'all', not '{args.analysis}'")
        _refuse_what_a_paper_says(args, model)
        return [_paper_job(figure, args) for figure in papers.find(args.paper)]
    chosen = analyses.OF_MODELS if args.analysis == EVERYTHING else (analyses.find(args.analysis),)
    _refuse_settings_of_nothing(args, model, chosen[0])
    task, make = _task(args)
    if chosen[0].of == "trainings":
        found = trainings.find([Path(name) for name in args.methods], args.checkpoint, task if args.data else None)
        return [_job(chosen[0], found, args, make)]
    names = args.methods or ([] if args.checkpoint else DEFAULT_METHODS)
    subjects = [_of_method(name, model, task) for name in dict.fromkeys(names)]
    subjects += [of_checkpoint(path, task if args.data else None) for path in args.checkpoint]
    return [_job(one, _distinct(subjects), args, make) for one in chosen]


def _said(model: Namespace) -> list[str]:
    """Return the settings of a model that the user has set, as flags."""
    # A flag without a value is False if unset; 0 is set.
    said = [name for name, value in sorted(vars(model).items()) if value is not None and value is not False]
    return [f"--{name.replace('_', '-')}" for name in said]


def _refuse_what_a_paper_says(args: Namespace, model: Namespace) -> None:
    """Refuse settings that the figure of a paper defines.

    Raises:
        UserError: the user sets some.
    """
    own = [one for one in parser()[1] if one.dest in vars(args) and one.dest not in PAPERS_OWN]
    said = [
        (one.option_strings or ["methods"])[-1]
        for one in own
        if (getattr(args, one.dest) or None) != (one.default or None)
    ]
    said += _said(model)
    if said:
        raise UserError(f"--paper defines what is measured: drop {', '.join(said)}")


def _refuse_settings_of_nothing(args: Namespace, model: Namespace, analysis: Analysis) -> None:
    """Refuse settings of a model, or of made-up words, if no method would read them.

    Raises:
        UserError: there are some.
    """
    only_trained = analysis.of == "trainings" or (args.checkpoint and not args.methods)
    if only_trained and (said := _said(model)):
        raise UserError(f"{', '.join(said)}: a trained model has its own settings; these options are for methods")
    if args.vocabulary is not None and (only_trained or args.data):
        whose = "a corpus" if args.data else "a trained model"
        raise UserError(f"--vocabulary: {whose} has its own words; this option is for methods and made-up words")


def _of_method(text: str, said: Namespace, task: Any) -> Subject:
    """Return a method, with its own settings if it is written ``METHOD:SETTING=VALUE:...``."""
    name, *settings = text.split(":")
    find_architecture(name)
    flags = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or key.replace("-", "_") not in vars(said):
            # A list of all settings would fill a page.
            near = nearest(key.replace("-", "_"), sorted(vars(said)))
            raise UserError(f"{text}: '{setting}' is not SETTING=VALUE of a model{near}")
        flags.append(f"--{key.replace('_', '-')}={value}")
    own = {key: value for key, value in vars(parse(["-", *flags])[1]).items() if value is not None}
    return of_options(name, Namespace(**{**vars(said), **own}), task, text)


def _distinct(subjects: Sequence[Subject]) -> list[Subject]:
    """Return the subjects with distinct labels."""
    labels = [subject.label for subject in subjects]
    numbered = (dataclasses.replace(one, label=f"{one.label} ({place})") for place, one in enumerate(subjects, start=1))
    return [one if labels.count(one.label) == 1 else other for one, other in zip(subjects, numbered, strict=True)]


def _task(args: Namespace) -> tuple[Any, Make | None]:
    if args.data is None:
        return made_up_task(args.vocabulary or WORDS, args.vocabulary or WORDS), None
    return read_data(args.data)


def _job(analysis: Analysis, subjects: Sequence[Any], args: Namespace, make: Make | None = None, **names: str) -> Job:
    """Return a job, with the analysis's default sizes if unset."""
    sentences, length = args.sentences or analysis.sentences, args.length or analysis.length

    def batch(subject: Subject) -> Batch:
        return make(sentences, length) if make else zipf_batch(subject.task, sentences, length, args.seed)

    settings = Settings(batch=batch, seed=args.seed, progress=progress, made_up=make is None)
    options = {option.name: getattr(args, option.name) for option in analysis.options}
    return Job(analysis, subjects, settings, options, **names)


def progress(text: str) -> None:
    """Print a progress line to standard error, apart from the result."""
    print(f"measuring {text}", file=sys.stderr, flush=True)


def _paper_job(figure: papers.PaperFigure, said: Namespace) -> Job:
    subjects = []
    for model in figure.models:
        args, options = parse([figure.analysis, *shlex.split(figure.flags), *shlex.split(model.flags)])
        task = made_up_task(args.vocabulary or WORDS, args.vocabulary or WORDS)
        subjects.append(of_options(model.method, options, task, model.label))
    args.seed = said.seed
    return _job(analyses.find(figure.analysis), subjects, args, prefix=figure.name, shows=figure.shows)


def run(job: Job, directory: Path, inputs: Collection[Path] = ()) -> list[Path]:
    """Measure, print, write; the numbers before the plots.

    Args:
        job: what to measure.
        directory: where to write.
        inputs: files that are read, with their full paths.

    Returns:
        The written files.

    Raises:
        UserError: nothing can be written there, or an input would be overwritten.
    """
    result = _renamed(job.analysis.run(job.subjects, job.settings, **job.options), job)
    print(f"{job.prefix or job.analysis.name}: {job.analysis.summary} [{job.shows or job.analysis.paper}]")
    print(tabulated(result.shown))
    for note in result.notes:
        print(note)
    about = {
        "analysis": job.analysis.name,
        "paper": job.analysis.paper,
        "shows": job.shows,
        "seed": job.settings.seed,
        job.analysis.of: [subject.about for subject in job.subjects],
    }
    names = [f"{table.name}{suffix}" for table in result.tables for suffix in (".csv", ".json")]
    names += [f"{figure.name}{suffix}" for figure in result.figures for suffix in (".png", ".pdf")]
    for name in names:
        if (directory / name).resolve() in inputs:
            raise UserError(f"--output {directory}: {name} would overwrite an input; give another directory")
    with writing(directory):
        files = [path for table in result.tables for path in tables.write(table, directory, about)]
        if plots.load_pyplot():
            files += [path for figure in result.figures for path in plots.draw(figure, directory)]
    print(f"files: {', '.join(path.name for path in files)}\n", flush=True)
    return files


def _renamed(result: Result, job: Job) -> Result:
    """Name the files of a paper's figure after the figure instead of the analysis."""
    if not job.prefix:
        return result

    def rename(one: Any) -> Any:
        return dataclasses.replace(one, name=job.prefix + one.name.removeprefix(result.tables[0].name))

    return dataclasses.replace(result, tables=[*map(rename, result.tables)], figures=[*map(rename, result.figures)])


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the logs of fairseq and of the calibration, which would go to the same stream as the result."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings():
            # fairseq passes masks of two types to torch.
            warnings.filterwarnings("ignore", message="Support for mismatched key_padding_mask")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def output(directory: Path) -> Iterator[None]:
    """Create the output directory before anything is measured; remove it again if it stays empty.

    Raises:
        UserError: nothing can be written there.
    """
    new = [path for path in (directory, *directory.parents) if not path.exists()]
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            for path in new:
                path.rmdir()


@contextlib.contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Turn system errors inside into one line."""
    try:
        yield
    except OSError as error:
        raise UserError(f"--output {directory}: cannot be written: {(error.strerror or str(error)).lower()}") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``fairseq-deep diagnose``; returns 0, or 2 after one line per problem."""
    with quiet():
        return exit_code(lambda: diagnose(list(sys.argv[1:] if argv is None else argv)))


def diagnose(argv: Sequence[str]) -> int:
    """Run the command; raises mistakes instead of printing them."""
    args, model = parse(argv)
    todo = jobs(args, model)
    refused: list[str] = []
    recorded = [file for job in todo for one in job.subjects if isinstance(one, Training) for file in one.files]
    inputs = {path.resolve() for path in (*args.checkpoint, *recorded)}
    with output(args.output):
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
