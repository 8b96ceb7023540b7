"""What ``scripts/train.sh`` is about to do: the command of a training, fitted to this machine.

``python -m fairseq_plugins.pipeline.plan CONFIG DATA RUN [KEY=VALUE ...]`` checks everything, writes ``RUN/run.json``
and the command to start. The configuration with its changes is the training as published; the machine changes how the
batches of an update are shared, never which they are.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fairseq_plugins.checkpoints.damaged import mend_last_checkpoint
from fairseq_plugins.errors import EXIT_CODE, UserError, report
from fairseq_plugins.files import write_whole
from fairseq_plugins.pipeline.configuration import (
    GROUPS_BY_NAME,
    configured_precision,
    configured_processes,
    precision_overrides,
    quoted,
    read_configuration,
)
from fairseq_plugins.pipeline.ending import finished, tell
from fairseq_plugins.pipeline.fits import (
    Corpus,
    binarised,
    bytes_in_memory,
    bytes_of_checkpoint,
    check_data,
    check_disk,
    check_memory,
    count_parameters,
    flat,
    gigabytes,
    kept_checkpoints,
    length_of,
)
from fairseq_plugins.pipeline.machine import Machine, choose_precision, this_machine
from fairseq_plugins.pipeline.sharing import Batches, Sharing, share

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_PORT = 29500
SET_HERE = {
    "task.data": "it is the second argument, DATA",
    "checkpoint.save_dir": "it is the third argument, RUN, with /checkpoints",
    "dataset.update_epoch_batch_itr": "it is always true, so that a resumed training is the uninterrupted one",
    **{
        f"distributed_training.{name}": "processes are started as NODES, RANK, PROCESSES and MASTER_ADDR say"
        for name in (
            "distributed_rank",
            "distributed_init_method",
            "distributed_port",
            "distributed_no_spawn",
            "distributed_num_procs",
            "distributed_backend",
            "device_id",
            "nprocs_per_node",
        )
    },
}


@dataclass(frozen=True)
class Request:
    """What the user asked of the script.

    Args:
        config: the YAML file.
        data: a prepared directory, or one that ``fairseq-preprocess`` made.
        run: the training's own directory.
        changes: KEY=VALUE.
        processes: of this machine; None for what fits.
        nodes: machines in all, and ``rank``, which of them this is.
        address: host and port of machine 0; the port is None for any free one.
        precision: ``auto`` or a precision.
        tensorboard, wandb_project: where to log to besides.
        checks: whether disk and memory are checked.
    """

    config: Path
    data: Path
    run: Path
    changes: tuple[str, ...] = ()
    processes: int | None = None
    nodes: int = 1
    rank: int = 0
    address: tuple[str, int | None] = ("localhost", None)
    precision: str = "auto"
    tensorboard: bool = False
    wandb_project: str = ""
    checks: bool = True


@dataclass(frozen=True)
class Plan:
    """A training fitted to this machine.

    Args:
        command: what to start.
        record: the content of ``run.json``.
        lines: what to tell the user.
    """

    command: tuple[str, ...]
    record: dict[str, Any]
    lines: tuple[str, ...]


def make_plan(request: Request, machine: Machine | None = None) -> Plan:
    """Check everything that can be checked before a training starts, and fit it to this machine.

    Args:
        request: what the user wants.
        machine: what there is; None to look.

    Raises:
        UserError: the configuration, the data, the disk, the memory or the number of processes do not fit.
    """
    data = binarised(request.data).resolve()
    config, changes = read_configuration(request.config, request.changes, data, SET_HERE)
    _check_loggers(request)
    corpus = check_data(data, config)
    machine = machine or this_machine(cpu_wanted=bool(config.common.cpu))
    batches = _batches(config, configured_processes(request.config, request.changes), corpus.longest)
    sharing = share(batches, request.nodes, request.processes, max(1, len(machine.gpus)))
    _check_gpus(request, machine, sharing)
    configured = configured_precision(config)
    precision = choose_precision(request.precision, configured, machine)
    tokens = batches.largest if batches.max_tokens else None
    parameters, vocabulary = count_parameters(config)
    disk = _disk_needed(config, precision, parameters, tokens, corpus)
    if request.checks:
        check_disk(request.run, disk[0], disk[1])
        needed = bytes_in_memory(parameters, vocabulary, config, precision, sharing.batches.max_tokens)
        _check_memory(needed, machine, sharing)
    how = (*_batch_overrides(config, batches, sharing), *precision_overrides(precision, config))
    fitted = _fitted(request, data, machine, sharing, how)
    command = _launcher(request, sharing, machine) + _training_command(request.config, (*changes, *fitted))
    record = _record(request, config, corpus, machine, sharing)
    record |= {"precision": precision, "tokens_per_update": tokens, "parameters": parameters, "command": list(command)}
    record["checkpoints"] = {"bytes": disk[0], "count": disk[1]}
    return Plan(command, record, tuple(_lines(record, machine, sharing, configured, disk)))


def _batches(config: Any, processes: int, longest: int | None) -> Batches:
    """The batches of one update of a configuration that was written for so many processes."""
    dataset, task = config.dataset, config.task
    equal = task.get("sample_break_mode", "") in ("none", None)
    return Batches(
        tuple(processes * int(each) for each in config.optimization.update_freq),
        dataset.max_tokens,
        dataset.batch_size,
        longest,
        int(task.tokens_per_sample) if equal else 0,
        int(dataset.required_batch_size_multiple),
    )


def _batch_overrides(config: Any, batches: Batches, sharing: Sharing) -> list[str]:
    """The size of the batches where they are cut; those of validation stay as they are."""
    cut, dataset = sharing.batches, config.dataset
    overrides = [f"optimization.update_freq=[{','.join(map(str, sharing.update_freq))}]"]
    if cut == batches:
        return overrides
    for name, limit in cut.limits().items():
        overrides += [f"dataset.{name}={limit}", f"dataset.{name}_valid={dataset[f'{name}_valid']}"]
    return [*overrides, f"dataset.required_batch_size_multiple={cut.multiple}"]


def _check_loggers(request: Request) -> None:
    """Say that a logger is not installed; fairseq says so in one line among thousands, and goes on."""
    if request.tensorboard and not any(map(_installed, ("tensorboard", "tensorboardX"))):
        raise UserError("TENSORBOARD=1 needs a package that is not installed: pip install tensorboardX")
    if request.wandb_project and not _installed("wandb"):
        raise UserError("WANDB_PROJECT needs a package that is not installed: pip install wandb")


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _check_gpus(request: Request, machine: Machine, sharing: Sharing) -> None:
    if not machine.on_cpu and sharing.processes > len(machine.gpus):
        raise UserError(f"PROCESSES={sharing.processes}: this machine has {len(machine.gpus)} GPUs")
    if not 0 <= request.rank < request.nodes:
        raise UserError(f"RANK is a machine's number from 0 to NODES-1 = {request.nodes - 1}, not {request.rank}")


def _disk_needed(config: Any, precision: str, parameters: int, tokens: int | None, corpus: Corpus) -> tuple[int, int]:
    """Bytes of all checkpoints that are kept, and their number."""
    count = kept_checkpoints(config, *length_of(config, tokens, corpus.training_tokens))
    return count * bytes_of_checkpoint(parameters, config, precision), count


def _check_memory(needed: int, machine: Machine, sharing: Sharing) -> None:
    if machine.on_cpu:
        check_memory(needed * sharing.processes, machine.memory, "this machine")
    else:
        check_memory(needed, machine.memory, machine.gpus[0])


def _fitted(request: Request, data: Path, machine: Machine, sharing: Sharing, how: Sequence[str]) -> tuple[str, ...]:
    """The overrides that are the machine's and the script's."""
    run = request.run.resolve()
    overrides = [
        f"task.data={quoted(data)}",
        f"checkpoint.save_dir={quoted(run / 'checkpoints')}",
        f"distributed_training.distributed_world_size={sharing.processes * request.nodes}",
        f"common.cpu={str(machine.on_cpu).lower()}",
        *how,
        "dataset.update_epoch_batch_itr=true",
        "common.log_format=json",
        "common.no_progress_bar=true",
        # fairseq's own form of the lines, and no file of Hydra's beside ours.
        "common.reset_logging=true",
        "hydra/job_logging=none",
        "hydra.output_subdir=null",
        f"hydra.run.dir={quoted(run)}",
    ]
    if request.tensorboard:
        overrides.append(f"common.tensorboard_logdir={quoted(run / 'tensorboard')}")
    if request.wandb_project:
        overrides.append(f"common.wandb_project={quoted(request.wandb_project)}")
    return tuple(overrides)


def _launcher(request: Request, sharing: Sharing, machine: Machine) -> tuple[str, ...]:
    """What stands before ``-m``: Python alone for one process, else torchrun, on one machine or on several."""
    if sharing.processes * request.nodes == 1:
        return (sys.executable,)
    host, port = request.address
    if port is None:
        # Only here: this brings fairseq, which is to be mended first.
        from fairseq_plugins.patches.cpu_processes import free_port

        port = free_port() if request.nodes == 1 else DEFAULT_PORT
    # Several processes on a CPU otherwise take every core each.
    threads = max(1, machine.cores // sharing.processes) if machine.on_cpu else 1
    limit = ("env", f"OMP_NUM_THREADS={threads}")
    return (
        *limit,
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        str(request.nodes),
        "--node_rank",
        str(request.rank),
        "--nproc_per_node",
        str(sharing.processes),
        "--master_addr",
        host,
        "--master_port",
        str(port),
    )


def _training_command(config: Path, overrides: Sequence[str]) -> tuple[str, ...]:
    where = ("--config-dir", str(config.resolve().parent), "--config-name", config.stem)
    return ("-m", "fairseq_plugins.cli", "hydra-train", *where, *overrides)


def _record(request: Request, config: Any, corpus: Corpus, machine: Machine, sharing: Sharing) -> dict[str, Any]:
    from omegaconf import OmegaConf

    devices = list(machine.gpus[: sharing.processes]) or [machine.processor]
    return {
        "config": _name_of(request.config),
        "overrides": list(request.changes),
        "method": str(config.model.get("_name") or config.model),
        "seed": int(config.common.seed),
        "data": str(request.data.resolve()),
        "data_fingerprint": corpus.fingerprint,
        "nodes": request.nodes,
        "processes": sharing.processes * request.nodes,
        "devices": devices,
        "update_freq": list(sharing.update_freq),
        "max_tokens": sharing.batches.max_tokens,
        "batch_size": sharing.batches.batch_size,
        "versions": _versions(),
        "git_commit": _git_commit(),
        "configuration": OmegaConf.to_container(config),
    }


def _name_of(config: Path) -> str:
    """Path under ``configs/`` without ending; the whole path for a file elsewhere."""
    path = config.resolve().with_suffix("")
    configs = ROOT / "configs"
    return str(path.relative_to(configs)) if path.is_relative_to(configs) else str(path)


def _versions() -> dict[str, str]:
    names = ("fairseq-deep", "fairseq-fixed", "torch", "numpy", "hydra-core", "omegaconf")
    return {"python": platform.python_version(), **{name: found for name in names if (found := _version(name))}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _git_commit() -> str | None:
    """The commit of this package's checkout, with ``+`` where files of it were changed since; None without git."""
    try:
        said = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout.strip()


def _lines(
    record: dict[str, Any], machine: Machine, sharing: Sharing, configured: str, disk: tuple[int, int]
) -> list[str]:
    where = "CPU" if machine.on_cpu else f"GPU ({machine.gpus[0]})"
    count, size = record["processes"], record["tokens_per_update"]
    freq = " then ".join(map(str, sharing.update_freq))
    batch = f"{record['max_tokens']} tokens" if size else "one batch"
    total = f"{sharing.batches.largest} tokens" if size else f"{sharing.batches.counts[-1]} batches"
    same = "" if sharing.note else ", as configured"
    other = f", not {configured} as configured" if record["precision"] != configured else ""
    return [
        f"{record['config']}: {record['method']}, {record['parameters']:,} parameters, seed {record['seed']}",
        f"{count} process{'es' if count > 1 else ''} on {where}, {record['precision']}{other}",
        f"{batch} x update_freq {freq} x {count} = at most {total} an update{same}",
        *([sharing.note] if sharing.note else []),
        f"checkpoints: at most {disk[1]}, about {gigabytes(disk[0])}",
    ]


NOT_TO_CHANGE = ("config", "overrides", "data_fingerprint", "precision", "tokens_per_update")


def check_unchanged(old: dict[str, Any], new: dict[str, Any], run: Path) -> None:
    """See that ``run`` is continued with the settings that it was begun with; where it runs may change.

    Raises:
        UserError: it is not; the settings are named.
    """
    changed = [
        f"{name}: {_short(new[name])}, was {_short(old.get(name))}"
        for name in NOT_TO_CHANGE
        if old.get(name) != new[name] and name != "overrides"
    ]
    before, after = dict(flat(old.get("configuration", {}))), dict(flat(new["configuration"]))
    # A newer version may have settings that the older did not know. Where things lie is no setting.
    own = before.keys() & after.keys() - {"task.data", "distributed_training.distributed_world_size"}
    # Some settings are handed on from group to group (the learning rate); each change is said once.
    said: dict[tuple[str, str], str] = {}
    for name in sorted(own, key=lambda name: (name.partition(".")[0] in GROUPS_BY_NAME, name)):
        if before[name] != after[name]:
            change = f"{after[name]}, was {before[name]}"
            said.setdefault((name.rpartition(".")[2], change), f"{name}: {change}")
    changed += said.values()
    if changed:
        raise UserError(
            f"{run}: holds a training with other settings ({'; '.join(changed)}); give another directory, or delete it"
        )


def _short(value: Any) -> str:
    """A fingerprint is told from another by its beginning."""
    text = str(value)
    return text if len(text) != 64 else f"{text[:12]}…"


def read_record(run: Path) -> dict[str, Any] | None:
    """The content of ``run.json``; None where no training was begun.

    Raises:
        UserError: the file is damaged.
    """
    file = run / "run.json"
    if not file.exists():
        return None
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file}: not JSON ({error}); give another directory, or delete it") from error
    if not isinstance(record, dict):
        raise UserError(f"{file}: not a JSON object; give another directory, or delete it")
    return record


def begin(request: Request, command_file: Path, *, dry_run: bool = False) -> int:
    """Plan, and leave the command in ``command_file``, its words each ended by a zero byte; nothing if all is done.

    Returns:
        0, or 1 for a training that ended in a loss that is not finite.

    Raises:
        UserError: as :func:`make_plan`, or the directory holds another training.
    """
    plan = make_plan(request)
    old, ending = read_record(request.run), finished(request.run)
    # A training that has left nothing, for instance since a value was wrong, may be begun otherwise.
    if old is not None and (ending is not None or any((request.run / "checkpoints").glob("*.pt"))):
        check_unchanged(old, plan.record, request.run)
    if ending is not None:
        tell([f"{request.run}: {ending.sentence()} already, nothing to do"])
        return ending.exit_code
    command_file.write_bytes(b"".join(word.encode() + b"\0" for word in plan.command))
    mended: list[str] = []
    if not dry_run and request.rank == 0:
        request.run.mkdir(parents=True, exist_ok=True)
        mended = mend_last_checkpoint(request.run / "checkpoints")
        write_whole(request.run / "run.json", json.dumps(plan.record, indent=1, sort_keys=True) + "\n")
    tell([*plan.lines, *mended])
    return 0


def parser() -> argparse.ArgumentParser:
    """Flags of this module, which ``scripts/train.sh`` gives."""
    flags = argparse.ArgumentParser(prog="python -m fairseq_plugins.pipeline.plan", description=__doc__)
    flags.add_argument("config", type=Path, metavar="CONFIG")
    flags.add_argument("data", type=Path, metavar="DATA")
    flags.add_argument("run", type=Path, metavar="RUN")
    flags.add_argument("changes", nargs="*", metavar="KEY=VALUE")
    flags.add_argument("--command-file", type=Path, required=True, help="where to write the command")
    flags.add_argument("--dry-run", action="store_true", help="write nothing but the command")
    flags.add_argument("--no-checks", dest="checks", action="store_false", help="leave out disk and memory")
    flags.add_argument("--processes", type=int)
    flags.add_argument("--nodes", type=int, default=1)
    flags.add_argument("--rank", type=int, default=0)
    flags.add_argument("--master-addr", default="localhost")
    flags.add_argument("--master-port", type=int)
    flags.add_argument("--precision", default="auto")
    flags.add_argument("--tensorboard", action="store_true")
    flags.add_argument("--wandb-project", default="")
    return flags


def _request(args: argparse.Namespace) -> Request:
    return Request(
        config=args.config,
        data=args.data,
        run=args.run,
        changes=tuple(args.changes),
        processes=args.processes,
        nodes=args.nodes,
        rank=args.rank,
        address=(args.master_addr, args.master_port),
        precision=args.precision,
        tensorboard=args.tensorboard,
        wandb_project=args.wandb_project,
        checks=args.checks,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Plan a training; 0, 1 where it has diverged already, or 2 after one line for each problem."""
    args = parser().parse_args(argv)
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    try:
        return begin(_request(args), args.command_file, dry_run=args.dry_run)
    except UserError as error:
        report(error)
        return EXIT_CODE


if __name__ == "__main__":
    sys.exit(main())
