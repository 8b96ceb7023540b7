"""``fairseq-deep compare DATA OUT CONFIG ... [KEY=VALUE ...]``: train, evaluate and report several configurations.

Each training is ``fairseq-deep run``, then ``fairseq-deep evaluate``, in its own directory. Both skip finished stages,
so the same command continues where it was stopped. A training that diverges is a row of the report.
"""

import argparse
import os
import re
import shlex
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.options import OneLineParser, at_least, given_again
from fairseq_plugins.process import end_children, start_child
from fairseq_plugins.tools.pipeline import corpus, evaluate
from fairseq_plugins.tools.pipeline import run as run_command
from fairseq_plugins.tools.pipeline.checkout import checkout, configuration_file
from fairseq_plugins.tools.pipeline.commands import DEEP, interruptible, require_success
from fairseq_plugins.tools.pipeline.configuration import CHANGE
from fairseq_plugins.tools.pipeline.machine import visible_gpus
from fairseq_plugins.tools.pipeline.report import report_on
from fairseq_plugins.tools.pipeline.results import FINISHED, SEED, sets_seed
from fairseq_plugins.tools.pipeline.workspace import Workspace, say, settings_in

DIVERGED = 1
"""Exit code of a training whose loss was not finite."""
POLLED = 0.1
"""Seconds between two polls of the children."""


@dataclass(frozen=True)
class Training:
    """One configuration with one seed: its YAML file, its data, its results and its KEY=VALUE changes."""

    config: Path
    data: Path
    run: Path
    changes: tuple[str, ...]


@dataclass(frozen=True)
class CompareOptions:
    """How the trainings of a comparison run: flags of ``run`` and of ``evaluate``, and how many at a time."""

    training: tuple[str, ...] = ()
    evaluation: tuple[str, ...] = ()
    parallel: int | None = None
    """Trainings at a time; None for a GPU each if all are for one GPU, else for one at a time."""
    processes: int | None = None
    """GPUs of each training; None for an equal share."""
    nodes: int = 1
    """Machines of each training; more than one only in a job of Slurm."""
    dry_run: bool = False


def compare(
    data: Path,
    out: Path,
    configs: Sequence[Path],
    changes: Sequence[str],
    seeds: Sequence[int],
    options: CompareOptions,
) -> None:
    """Train, average, decode and score every configuration with every seed, in ``OUT/CONFIGURATION/seedN``.

    ``OUT/report`` tests the other configurations against the first; ``changes`` (KEY=VALUE) are for all of them. A
    UserError names a wrong argument; a command that fails prints its own error and ends this process.
    """
    corpus.require_apart(out, data, "OUT")
    require_slurm(options.nodes)
    files = [configuration_file(config) for config in configs]
    if len({run_directory(out, file, 0) for file in files}) < len(files):
        raise UserError(f"two CONFIG have one file name, and so one directory in {out}: {' '.join(map(str, configs))}")
    if not options.dry_run:
        corpus.binarised(data)
        corpus.sets_to_evaluate(data)
    # From another directory the same text has another relative path.
    before = settings_in(out).get("data")
    same = before is not None and Path(before).resolve() == data.resolve()
    settings = (("overrides", " ".join(changes)), ("data", before if same else data.resolve()))
    with interruptible(), Workspace(out, dry_run=options.dry_run).claimed(settings):
        trainings = [
            Training(file, data, run_directory(out, file, seed), (f"common.seed={seed}", *changes))
            for seed in seeds
            for file in files
        ]
        train_all(trainings, options)
        report([training.run for training in trainings], out, options)


def require_slurm(nodes: int) -> None:
    """Raise a UserError if a training on several machines cannot be started: without Slurm or a checkout."""
    if nodes > 1 and not os.environ.get("SLURM_JOB_ID"):
        raise UserError(
            f"--nodes {nodes} needs a Slurm job: sbatch --nodes {nodes} [OPTION ...] scripts/slurm.sh compare ..., "
            "or scripts/slurm.sh SCRIPT, a script of scripts/reproduce"
        )
    if nodes > 1 and checkout() is None:
        raise UserError(f"--nodes {nodes} needs scripts/slurm.sh of the repository, which is not installed")


def run_directory(out: Path, config: Path, seed: int, changes: Iterable[str] = ()) -> Path:
    """Directory of a run.

    A changed recipe is another run: the name contains the last word of the key and the value, without characters that
    a shell would need quoted.
    """
    name = config.name.removesuffix(".yaml")
    for key, _, value in (change.partition("=") for change in changes):
        name += f",{key.rpartition('.')[2]}={re.sub('[^A-Za-z0-9.-]+', '_', value).strip('_')}"
    return out / name / f"seed{seed}"


def report(runs: Sequence[Path], out: Path, options: CompareOptions) -> None:
    """Print the report on the runs and write it to ``OUT/report``."""
    if options.dry_run:
        print(shlex.join([*DEEP, "report", *map(str, runs), "--output", str(out / "report")]))
    else:
        report_on(runs, out / "report")


# --- several trainings, some of them at a time ----------------------------------------------------------------------


def train_all(
    trainings: Sequence[Training], options: CompareOptions, evaluations: Sequence[Sequence[str]] = ((),)
) -> None:
    """Train and evaluate each, several at a time on GPUs of their own, in this order; the first failure ends all.

    Each of ``evaluations`` is one call of ``fairseq-deep evaluate``: the test sets, then its own flags.
    """
    free = deque(places(trainings, options))
    # Mixed lines of several logs are unreadable.
    options = replace(options, training=tuple(dict.fromkeys([*options.training, *["--quiet"] * (len(free) > 1)])))
    waiting = deque((training, _commands(training, options, evaluations)) for training in trainings)
    if options.dry_run:
        # The dry runs of the commands themselves need files that do not exist yet.
        print("\n".join(shlex.join(command) for _, commands in waiting for command in commands), flush=True)
        return
    running: dict[subprocess.Popen[bytes], tuple[Training, list[list[str]], dict[str, str]]] = {}
    try:
        while waiting or running:
            for child in [child for child in running if child.poll() is not None]:
                training, following, place = running.pop(child)
                free.append(place)
                # A bug ends with the same code, but without a result.
                diverged = child.returncode == DIVERGED and (training.run / FINISHED).exists()
                if diverged and len(following) == len(evaluations):
                    say(f"{training.run}: diverged, not evaluated")
                    continue
                require_success(child.returncode)
                if following:
                    waiting.appendleft((training, following))
            while waiting and free:
                (training, (command, *following)), place = waiting.popleft(), free.popleft()
                child = start_child(command, stdin=subprocess.DEVNULL, env={**os.environ, **place})
                running[child] = training, following, place
            time.sleep(POLLED)
    finally:
        end_children(list(running))


def places(trainings: Iterable[Training], options: CompareOptions) -> list[dict[str, str]]:
    """Variables of the environment for each of the trainings at a time: a share of the GPUs that are visible here.

    A recipe for one GPU makes an update of one batch, which several GPUs would have to cut. So several such trainings
    run at a time by default, each on a GPU of its own.
    """
    if options.nodes > 1 or options.parallel == 1 or not (options.parallel or all(map(_is_for_one_gpu, trainings))):
        return [{}] * (options.parallel or 1)
    gpus = visible_gpus()
    each = options.processes or (max(1, len(gpus) // options.parallel) if options.parallel else 1)
    at_a_time, ring = options.parallel or max(1, len(gpus) // each), cycle(gpus)
    shares = [",".join(islice(ring, min(each, len(gpus)))) for _ in range(at_a_time)]
    return [{"CUDA_VISIBLE_DEVICES": share} if share else {} for share in shares]


def _is_for_one_gpu(training: Training) -> bool:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    changes = [change.lstrip("+") for change in training.changes]
    try:
        recipe = OmegaConf.merge(OmegaConf.load(training.config), OmegaConf.from_dotlist(changes))
    except (OSError, ValueError, YAMLError, OmegaConfBaseException):
        return False  # the training says what is wrong
    batch = {"common.cpu": False, "optimization.update_freq": [1], "distributed_training.distributed_world_size": 1}
    return all(OmegaConf.select(recipe, key, default=value) == value for key, value in batch.items())


def _commands(training: Training, options: CompareOptions, evaluations: Sequence[Sequence[str]]) -> list[list[str]]:
    top = checkout()
    # slurm.sh starts the training on all machines; everything else runs on this one.
    run = [*DEEP, "run"] if options.nodes == 1 or top is None else [str(top / "scripts" / "slurm.sh")]
    evaluation = [*DEEP, "evaluate", str(training.run), str(training.data)]
    return [
        [*run, *map(str, (training.config, training.data, training.run)), *training.changes, *options.training],
        *([*evaluation, *words, *options.evaluation] for words in evaluations),
    ]


# --- the command ----------------------------------------------------------------------------------------------------


def add_options(flags: argparse.ArgumentParser) -> Callable[[argparse.Namespace], CompareOptions]:
    """Add the options that the commands for several trainings share; return a function that reads them."""
    parallel = "trainings at a time; default: 1, or one on each GPU if all are for one"
    nodes = "machines of each training; scripts/slurm.sh sets it"
    flags.add_argument("--parallel", type=at_least(1), metavar="N", help=parallel)
    flags.add_argument("--nodes", type=at_least(1), default=1, metavar="N", help=nodes)
    switch = argparse.BooleanOptionalAction
    flags.add_argument("--dry-run", action=switch, default=False, help="only print the commands")
    training, evaluation = run_command.add_options(flags), evaluate.add_options(flags)

    def read(args: argparse.Namespace) -> CompareOptions:
        flags_of_run, flags_of_evaluate = tuple(given_again(args, training)), tuple(given_again(args, evaluation))
        return CompareOptions(flags_of_run, flags_of_evaluate, args.parallel, args.processes, args.nodes, args.dry_run)

    return read


def main(argv: Sequence[str]) -> int:
    """Compare; the code of a command that failed passes through."""
    flags = OneLineParser(
        prog="fairseq-deep compare",
        description="Train, average, decode and score several configurations with several seeds on one prepared "
        "corpus, and compare them. The same command continues where it was stopped.",
    )
    flags.add_argument("data", type=Path, metavar="DATA", help="a prepared directory")
    out = "results: OUT/CONFIGURATION/seedN for each run, and OUT/report"
    flags.add_argument("out", type=Path, metavar="OUT", help=out)
    words = "YAML files, or their names in configs/ (the first is the baseline), and changes for all of them"
    flags.add_argument("words", nargs="+", metavar="CONFIG|KEY=VALUE", help=words)
    flags.add_argument("--seeds", nargs="+", type=at_least(0), default=[1, 2, 3], metavar="N", help="default: 1 2 3")
    options = add_options(flags)
    args = flags.read(argv)
    changes = [word for word in args.words if CHANGE.fullmatch(word) and not os.path.isfile(word)]
    configs = [Path(word) for word in args.words if word not in changes]
    if not configs:
        flags.error("no CONFIG given")
    if any(map(sets_seed, changes)):
        flags.error(f"{SEED} would be the same in each training; use --seeds")
    compare(args.data, args.out, configs, changes, list(dict.fromkeys(args.seeds)), options(args))
    return 0
