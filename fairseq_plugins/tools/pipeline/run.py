"""``fairseq-deep run CONFIG DATA RUN [KEY=VALUE ...]``: train one configuration; the same command resumes.

The machine changes how the batches of an update are shared, never which they are. This file has the parts of a run in
their order: the request, the plan for this machine, the check that RUN can be continued, the training, and its end.
"""

import argparse
import atexit
import json
import logging
import mmap
import multiprocessing
import os
import platform
import runpy
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError, report, visible
from fairseq_plugins.files import no_link, write_whole
from fairseq_plugins.options import OneLineParser, at_least
from fairseq_plugins.process import end_with, users_mistake
from fairseq_plugins.sums import checksum
from fairseq_plugins.tools.pipeline.batch_split import Batches, BatchSplit, share
from fairseq_plugins.tools.pipeline.checkout import commit, configuration_file, name_of, refuse_other_user_dir
from fairseq_plugins.tools.pipeline.commands import COMMAND, interruptible
from fairseq_plugins.tools.pipeline.configuration import (
    Configuration,
    quoted,
    read_configuration,
    taken_as_it_is,
    task_and_model,
)
from fairseq_plugins.tools.pipeline.corpus import binarised, check_data, require_apart
from fairseq_plugins.tools.pipeline.machine import PRECISIONS, Machine, Precision, choose_precision, this_machine
from fairseq_plugins.tools.pipeline.progress import Progress
from fairseq_plugins.tools.pipeline.results import AVERAGED, CHECKPOINTS, EVALUATION, FINISHED, RUN_RECORD, read_record
from fairseq_plugins.tools.pipeline.resume import Ending, check_unchanged, finished, is_longer, say_how_it_ended
from fairseq_plugins.tools.pipeline.workspace import Workspace, say
from fairseq_plugins.tools.text.description import described

DEFAULT_PORT = 29500
POLLED = 0.3
"""Seconds between two reads of the log."""
SET_HERE = {
    "task.data": "it is the second argument, DATA",
    "checkpoint.save_dir": "it is the third argument, RUN, with /checkpoints",
    "dataset.update_epoch_batch_itr": "it is always true, so that a resumed training equals an uninterrupted one",
    **dict.fromkeys(
        (
            f"distributed_training.{name}"
            for name in "distributed_rank distributed_init_method distributed_port distributed_no_spawn "
            "distributed_num_procs distributed_backend device_id nprocs_per_node".split()
        ),
        "use --nodes, --rank, --processes and --master-addr",
    ),
}


# --- the request ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """The user's request: the options of ``fairseq-deep run``, whose help says what each is."""

    config: Path
    data: Path
    run: Path
    changes: Sequence[str] = ()
    processes: int | None = None
    nodes: int = 1
    rank: int = 0
    master_addr: str = "localhost"
    master_port: int | None = None
    precision: str = "auto"
    quiet: bool = False
    dry_run: bool = False


def add_options(flags: argparse.ArgumentParser) -> list[argparse.Action]:
    """Add the options that a comparison passes on to each training."""
    add = flags.add_argument_group("training").add_argument
    precision = f"auto: as configured if the device supports it (default); or {', '.join(PRECISIONS)}"
    switch: dict[str, Any] = {"action": argparse.BooleanOptionalAction, "default": False}
    return [
        add("--processes", type=at_least(1), metavar="N", help="of this machine; default: one per GPU, 1 on a CPU"),
        add("--precision", default="auto", choices=("auto", *PRECISIONS), metavar="P", help=precision),
        add("--quiet", **switch, help="do not show the progress"),
    ]


def main(argv: Sequence[str]) -> int:
    """``fairseq-deep run CONFIG DATA RUN [KEY=VALUE ...]``; 0, or 1 for a training that ended in a failure."""
    flags = OneLineParser(
        prog="fairseq-deep run",
        description="Train one configuration on all GPUs, or on the CPU without one; the same command resumes.",
        epilog="Exit codes: 0 trained; 1 diverged or failed to train: the loss was not finite, or the guard has ended "
        "the training; 2 an error, in one line for each problem; 130 interrupted.",
    )
    config = "a YAML file, or its name in configs/: multi30k_de_en/admin_3e3d"
    flags.add_argument("config", type=Path, metavar="CONFIG", help=config)
    flags.add_argument("data", type=Path, metavar="DATA", help="prepared data, or the output of fairseq-preprocess")
    flags.add_argument("run", type=Path, metavar="RUN", help="the training's own directory")
    changes = "changes to the configuration, for example optimization.max_update=1000"
    flags.add_argument("changes", nargs="*", default=[], metavar="KEY=VALUE", help=changes)
    add_options(flags)
    add = flags.add_argument_group("several machines, with RUN on a shared disk").add_argument
    add("--nodes", type=at_least(1), default=1, metavar="N", help="number of machines; default: 1")
    add("--rank", type=at_least(0), default=0, metavar="N", help="number of this machine, from 0")
    add("--master-addr", default="localhost", metavar="HOST", help="address of machine 0")
    add("--master-port", type=at_least(1), metavar="PORT", help=f"default: {DEFAULT_PORT}")
    flags.add_argument("--dry-run", action=argparse.BooleanOptionalAction, default=False, help="only print the command")
    return train(Request(**vars(flags.read(argv))))


def train(request: Request) -> int:
    """Train, continue, or leave a finished training as it is; 1 for a training that diverged, else 0."""
    require_apart(request.run, request.data, "RUN")
    # One directory per machine: a lock of another machine may be invisible here.
    place = request.run if request.rank == 0 else request.run / f".rank{request.rank}"
    with interruptible(), Workspace(place, dry_run=request.dry_run).claimed():
        log = request.run / ("train.log" if request.rank == 0 else f"train.rank{request.rank}.log")
        since = log.stat().st_size if log.exists() else 0
        # Only the first machine logs the numbers.
        trains, code = _trained(request, log, None if request.quiet or request.rank else Progress(log, since))
        if not trains or request.rank:
            return code
        ending = say_how_it_ended(request.run, code, log, since)
        output = sys.stderr if ending.exit_code else sys.stdout
        print(visible(f"{request.run}: {ending.sentence()}"), file=output, flush=True)
        return ending.exit_code


# --- the plan for this machine --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LaunchPlan:
    """A training fitted to this machine.

    Args:
        module: the module that Python runs.
        arguments: of ``module``.
        environment: variables that it needs.
        record: the content of ``run.json`` without the command.
        lines: for the user.
        before: the former content of ``run.json``.
        ending: how the training ended, if it has ended already.
    """

    module: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    record: dict[str, Any]
    lines: tuple[str, ...]
    before: dict[str, Any] | None = None
    ending: Ending | None = None

    @property
    def command(self) -> list[str]:
        """The same for a shell, to be shown and kept; nothing reads it back."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        python = ["env", *variables, sys.executable] if variables else [sys.executable]
        return [*python, "-m", self.module, *self.arguments]


def make_plan(request: Request, machine: Machine | None = None) -> LaunchPlan:
    """Fit a training to this machine (the default); a UserError if configuration, data or processes do not fit."""
    if request.rank >= request.nodes:
        raise UserError(f"--rank is a machine's number from 0 to --nodes - 1 = {request.nodes - 1}, not {request.rank}")
    data = taken_as_it_is(binarised(request.data))
    recipe = read_configuration(configuration_file(request.config), request.changes, data, SET_HERE)
    config = recipe.config
    refuse_other_user_dir(config.common.user_dir)
    files = check_data(data, config)
    machine = machine or this_machine(cpu_wanted=bool(config.common.cpu))
    before = read_record(request.run / RUN_RECORD) if _has_begun(request.run) else None
    precision = choose_precision(request.precision, config, machine, (before or {}).get("precision"))
    batches = Batches.of(config, recipe.processes)
    split = share(batches, request.nodes, request.processes, max(1, len(machine.gpus)))
    if not machine.on_cpu and split.processes > len(machine.gpus):
        raise UserError(f"--processes {split.processes}: this machine has {len(machine.gpus)} GPUs")
    task, model = task_and_model(config)
    gpus = 0 if machine.on_cpu else split.processes * request.nodes
    graphs, about_graphs = _graphs(config, task, model, gpus, before)
    where = ("--config-dir", str(recipe.file.resolve().parent), "--config-name", recipe.file.stem)
    words = ("hydra-train", *where, *recipe.overrides, *_overrides(request, data, machine, split))
    words += (*split.overrides(config), *precision.overrides, *_bleu_of_validation(request, config))
    if graphs and not config.common.cuda_graphs:
        words += ("common.cuda_graphs=true",)
    if graphs and config.dataset.length_grid is None:
        words += ("dataset.length_grid=1",)  # the batches of a recipe are the same on every machine
    record = {
        **_record(request, recipe, files, machine, split),
        **{name: value for name, value in (before or {}).items() if name == "config"},  # the row, if it was moved
        "precision": precision.name,
        "cuda_graphs": graphs,
        "tokens_per_update": batches.largest if batches.max_tokens else None,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
    lines = (*_lines(record, machine, split, precision), *about_graphs)
    if split.processes * request.nodes == 1:
        return LaunchPlan(COMMAND, words, {}, record, lines, before)
    # Several processes on a CPU share its cores; by default, each process would use all cores.
    threads = max(1, machine.cores // split.processes) if machine.on_cpu else 1
    port = request.master_port
    if port is None:
        from torch.distributed.elastic.utils.distributed import get_free_port

        port = get_free_port() if request.nodes == 1 else DEFAULT_PORT
    place = f"--nnodes {request.nodes} --node_rank {request.rank} --nproc_per_node {split.processes}"
    address = ("--master_addr", request.master_addr, "--master_port", str(port))
    torchrun = (*place.split(), *address, "-m", COMMAND, *words)
    return LaunchPlan("torch.distributed.run", torchrun, {"OMP_NUM_THREADS": str(threads)}, record, lines, before)


def _has_begun(run: Path) -> bool:
    """Whether RUN holds a training; without a checkpoint, as after a wrong value, any other may begin there."""
    trained = (run / FINISHED).exists() or any((run / CHECKPOINTS).glob("*.pt"))
    return trained and (run / RUN_RECORD).exists()


def _graphs(config: Any, task: Any, model: Any, gpus: int, before: dict[str, Any] | None) -> tuple[bool, list[str]]:
    """Whether the training has CUDA graphs, and a line about them; unless stated, a run keeps its first choice."""
    from fairseq_plugins.training.cuda_graphs import obstacles

    stated, begun = config.common.cuda_graphs, before is None or before.get("cuda_graphs", False)
    if not gpus or not (begun if stated is None else stated):
        return False, []
    if reasons := obstacles(config, task, model, task.build_criterion(config.criterion), gpus):
        return False, [f"no CUDA graphs: {'; '.join(reasons)}"]
    return True, ["CUDA graphs: fewer launches, the same losses; common.cuda_graphs=false turns them off"]


def _overrides(request: Request, data: Path, machine: Machine, split: BatchSplit) -> list[str]:
    """The overrides for this machine and for the files of RUN."""
    run = taken_as_it_is(request.run)
    return [
        f"++task.data={quoted(data)}",
        f"checkpoint.save_dir={quoted(run / 'checkpoints')}",
        f"distributed_training.distributed_world_size={split.processes * request.nodes}",
        f"common.cpu={str(machine.on_cpu).lower()}",
        "dataset.update_epoch_batch_itr=true",
        "common.log_format=json",
        "common.no_progress_bar=true",
        # fairseq's own format of the lines, and no log file of Hydra.
        "common.reset_logging=true",
        "hydra/job_logging=none",
        "hydra.output_subdir=null",
        f"hydra.run.dir={quoted(run)}",
    ]


def _bleu_of_validation(request: Request, config: Any) -> list[str]:
    """The overrides with which each validation scores translations of this data, by its ``text.json``."""
    task = config.task
    if not task.get("eval_bleu"):
        return []
    overrides = []
    if (task.eval_bleu_args or "{}").replace(" ", "") == "{}":
        form = config.generation.get("lenpen_form", "fairseq")
        search = {"beam": 1, **({} if form == "fairseq" else {"lenpen_form": form})}
        # `++`: the YAML may lack a key of a named group.
        overrides.append(f"++task.eval_bleu_args={quoted(json.dumps(search))}")
    if text := described(request.data):
        in_tokens = text.tokeniser == "moses"
        languages = {name: task[name] for name in ("source_lang", "target_lang") if in_tokens and task[name]}
        overrides += [
            f"++task.eval_bleu_detok={'moses' if in_tokens else 'space'}",
            f"++task.eval_bleu_detok_args={quoted(json.dumps(languages))}",
            f"++task.eval_bleu_remove_bpe={text.subwords}",
        ]
    return overrides


def _record(
    request: Request, recipe: Configuration, files: Sequence[Path], machine: Machine, split: BatchSplit
) -> dict[str, Any]:
    from omegaconf import OmegaConf

    versions = {"python": platform.python_version()}
    for package in ("fairseq-deep", "fairseq-fixed", "torch", "numpy", "hydra-core", "omegaconf"):
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    config, data = recipe.config, request.data.resolve()
    # How a script of scripts/ was called that prepared the text.
    call = (data.parent if data.name == "data-bin" else data) / "prepared_by"
    return {
        "config": name_of(recipe.file),
        "overrides": list(request.changes),
        "method": str(config.model.get("_name") or config.model),
        "seed": int(config.common.seed),
        "data": str(data),
        "data_content": checksum(*files),
        "prepared_by": call.read_text(encoding="utf-8").strip() if call.is_file() else None,
        "nodes": request.nodes,
        "processes": split.processes * request.nodes,
        "devices": list(machine.gpus[: split.processes]) or [machine.processor],
        "update_freq": list(split.update_freq),
        "max_tokens": split.batches.max_tokens,
        "batch_size": split.batches.batch_size,
        "versions": versions,
        "git_commit": commit(),
        "configuration": OmegaConf.to_container(config),
    }


def _lines(record: dict[str, Any], machine: Machine, split: BatchSplit, precision: Precision) -> list[str]:
    where = "CPU" if machine.on_cpu else f"GPU ({machine.gpus[0]})"
    count, size = record["processes"], record["tokens_per_update"]
    freq = " then ".join(map(str, split.update_freq))
    batch = f"{record['max_tokens']} tokens" if size else "one batch"
    total = f"{split.batches.largest} tokens" if size else f"{split.batches.counts[-1]} batches"
    same = "" if split.note else ", as configured"
    other = f", not {precision.configured} as configured" if precision.name != precision.configured else ""
    return [
        f"{record['config']}: {record['method']}, {record['parameters']:,} parameters, seed {record['seed']}",
        f"{count} process{'es' if count > 1 else ''} on {where}, {precision.name}{other}",
        f"{batch} x update_freq {freq} x {count} = at most {total} an update{same}",
        *([split.note] if split.note else []),
    ]


# --- the check that RUN can be continued ----------------------------------------------------------------------------


def begun(request: Request) -> LaunchPlan:
    """Plan a training, check that it continues the one in RUN, and write ``RUN/run.json``.

    A UserError if the directory holds another training, or results of an earlier one.
    """
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    plan = make_plan(request)
    old, ending = plan.before, finished(request.run)
    begins = not any((request.run / CHECKPOINTS).glob("*.pt"))
    if old is not None:
        check_unchanged(old, plan.record, request.run)
    longer = old is not None and ending is not None and not ending.reason and is_longer(old, plan.record)
    if ending is not None and not longer:
        line = f"{request.run}: {ending.sentence()} already, nothing to do"
        return replace(plan, lines=(line,), ending=ending)
    made_of_it = [str(place) for name in (EVALUATION, AVERAGED) if (place := request.run / name).exists()]
    if made_of_it and (longer or begins):
        # Refused now: the evaluation would refuse only after hours of training, or take the files there for its own.
        raise UserError(
            f"{' and '.join(made_of_it)}: made from the earlier run; move or delete this to continue training"
        )
    from fairseq_plugins.checkpoints.provenance import LAST

    checkpoints = request.run / CHECKPOINTS
    if longer and not (checkpoints / LAST).is_file():
        raise UserError(f"{checkpoints} has no {LAST}, from which the finished training could go on")
    if request.dry_run or request.rank != 0:
        return plan
    request.run.mkdir(parents=True, exist_ok=True)
    if longer:
        (request.run / FINISHED).unlink(missing_ok=True)
    content = {**plan.record, "command": plan.command}
    write_whole(request.run / RUN_RECORD, json.dumps(content, indent=1, sort_keys=True) + "\n")
    return plan


# --- the training ---------------------------------------------------------------------------------------------------


def _trained(request: Request, log: Path, progress: Progress | None) -> tuple[bool, int]:
    """Plan a training and train, in a fork of this process, which has not imported torch; show the progress.

    Returns whether the training has begun, and the exit code as in a shell.
    """
    sys.stdout.flush()
    trains = mmap.mmap(-1, 1)  # shared with the fork, which sets it
    child = multiprocessing.get_context("fork").Process(
        target=_plan_and_train, args=(request, log, trains, os.getpid())
    )
    child.start()
    try:
        while child.exitcode is None:
            child.join(POLLED)
            if progress is not None and trains[0]:
                progress.poll()
    finally:
        # SIGTERM ends Python at once; checkpoints are whole at any time.
        child.terminate()
        child.join()
    code = child.exitcode
    if code < 0 and not trains[0]:
        raise UserError("the check before the training was killed; is the memory full?")
    return bool(trains[0]), code if code >= 0 else 128 - code


def _plan_and_train(request: Request, log: Path, trains: mmap.mmap, parent: int) -> None:
    """Print the plan of a training, or the mistake that prevents it; then become the program that the plan launches.

    Neither the imports nor the context on a GPU are made twice.
    """
    # Ctrl-C reaches the training through its parent; it would otherwise log a traceback.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with(parent)
    try:
        plan = begun(request)
        ended = plan.ending is not None or request.dry_run
        output = -1 if ended else no_link(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    except Exception as error:
        mistake = users_mistake(error)
        if mistake is None:
            raise
        report(mistake)
        sys.exit(mistake.exit_code)
    for line in (*plan.lines, *([shlex.join(plan.command)] if request.dry_run and plan.ending is None else [])):
        say(line)
    if ended:
        sys.exit(plan.ending.exit_code if plan.ending else 0)
    trains[0] = 1
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    logging.getLogger("fairseq").setLevel(logging.NOTSET)
    os.environ.update(plan.environment)
    sys.argv = ["-m", *plan.arguments]
    try:
        runpy.run_module(plan.module, run_name="__main__", alter_sys=True)
    finally:
        # A fork ends without them: loggers such as W&B finish there.
        atexit._run_exitfuncs()
