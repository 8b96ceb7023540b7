"""Every table of speed on this machine: calls the other scripts here, one a table, and writes one Markdown file.

A table that fails is named in the file and on the terminal, and the exit code is then 1. Run it from the repository's
root: ``python benchmarks/run_all.py --help``; for a GPU see ``benchmarks/gpu.sh``.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8", "bf16", "i8mm")
"""Words of ``/proc/cpuinfo`` on which the speed of a precision depends."""
PACKAGES = ("torch", "fairseq-fixed", "numpy")
_FEW = "post_ln,admin,b2t,dsinit_matt,rezero"
DEEP = "post_ln,pre_ln,admin,b2t,dsinit_matt,rezero,dlcl,dlcl_post_ln"


class Table(NamedTuple):
    """One table: a script, its arguments, the rounds it takes, and what its heading says."""

    title: str
    script: str
    arguments: tuple[str, ...]
    rounds: int


def words(text: str) -> tuple[str, ...]:
    """Arguments as on a command line."""
    return tuple(text.split())


CPU_TABLES = {
    "step": Table("A training step, 6-6 layers, width 512", "step_time.py", (), 15),
    "step-amp": Table(
        "A training step in mixed precision, 6-6 layers, width 512",
        "step_time.py",
        words(f"--amp --methods {_FEW}"),
        15,
    ),
    "step-amp-fused": Table(
        "A training step in mixed precision and with fused_adam, 6-6 layers, width 512",
        "step_time.py",
        words(f"--amp --optimizer fused_adam --methods {_FEW}"),
        15,
    ),
    "step-60-12": Table(
        "A training step, 60-12 layers, width 128",
        "step_time.py",
        words(f"--layers 60 --decoder-layers 12 --width 128 --methods {DEEP}"),
        7,
    ),
    "step-60-12-fused": Table(
        "A training step with fused_adam, 60-12 layers, width 128",
        "step_time.py",
        words(f"--layers 60 --decoder-layers 12 --width 128 --optimizer fused_adam --methods {DEEP}"),
        7,
    ),
    "step-100-100": Table(
        "A training step, 100-100 layers, width 64", "step_time.py", words("--layers 100 --width 64"), 7
    ),
    "step-profile": Table(
        "Where the time of a training step goes, 6-6 layers, width 512",
        "step_profile.py",
        words("--optimizer fused_adam"),
        5,
    ),
    "loss": Table("Chunked loss", "output_and_loss.py", (), 9),
    "optimizer": Table("Adam by lists of tensors, and in one pass", "optimizer_time.py", (), 25),
    "decode": Table("Beam search, 6-6 layers, by search and precision", "decode_time.py", words("--layers 6"), 9),
    "decode-12-12": Table("Beam search, 12-12 layers, by search and precision", "decode_time.py", (), 9),
}
_BATCH = "--device cuda --sentences 512 --length 8 --vocabulary 32000"
_DEEP = f"--device cuda --sentences 128 --together 4 --methods {DEEP}"
GPU_TABLES = {
    f"step-{precision}": Table(
        f"A training step of 512 sentences and 4,096 tokens, methods in {precision}, stock in fp16",
        "step_time.py",
        words(f"{_BATCH} --precision {precision} --stock-precision fp16 --methods {_FEW}"),
        15,
    )
    for precision in ("fp16", "bf16")
} | {
    f"step-{layers}-{decoder}-{precision}": Table(
        f"A training step, {layers}-{decoder} layers, width {width}, {precision}",
        "step_time.py",
        words(f"{_DEEP} --precision {precision} --layers {layers} --decoder-layers {decoder} --width {width}"),
        5,
    )
    for layers, decoder, width in ((18, 18, 512), (60, 12, 512), (100, 100, 256))
    for precision in (("fp16", "bf16") if layers < 100 else ("fp16",))
}
GPU_TABLES |= {
    "waits": Table("How often the host waits for the GPU", "host_waits.py", words("--device cuda --precision fp16"), 1),
    "decode": Table(
        "Beam search in fp16, 12-12 layers",
        "decode_time.py",
        words("--device cuda --half --searches fairseq,lean --sentences 64"),
        5,
    ),
    "optimizer": Table(
        "Adam by lists of tensors, and in one pass", "optimizer_time.py", words("--device cuda --width 512"), 15
    ),
    "loss": Table("Chunked loss, fp16", "output_and_loss.py", words("--device cuda --precision fp16"), 15),
    "profile": Table(
        "Admin's profile of the first batch, 18-18 layers, fp16",
        "profile_cost.py",
        words(f"{_BATCH} --precision fp16 --layers 18"),
        9,
    ),
    "training": Table("Multi30k from raw text to BLEU, and its engines", "training_to_bleu.py", (), 3),
}


def revision() -> str:
    """The commit of the checkout, with a plus for changes to it; ``unknown`` without git."""
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"


def description(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Lines on the machine: processor with its flags, cores, load, versions and revision."""
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    entries = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = set((entries.get("flags") or entries.get("Features") or "").split())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return [
        f"- Processor: {entries.get('model name') or platform.processor() or platform.machine()}",
        f"- Flags: {', '.join(flag for flag in FLAGS if flag in flags) or 'none of ' + ', '.join(FLAGS)}",
        f"- Cores: {cores}; load when it began: {os.getloadavg()[0]:.1f}",
        f"- Versions: Python {platform.python_version()}, {versions}",
        f"- Revision: {revision()}",
    ]


def gpu_name() -> str:
    """The name of this machine's GPU as part of a file's, such as ``gpu_nvidia_l4``."""
    import torch

    if not torch.cuda.is_available():
        sys.exit("error: torch finds no GPU here; docs/installation.md says what to install")
    return "gpu_" + "_".join(re.findall(r"[a-z0-9]+", torch.cuda.get_device_name().lower()))


def command(table: Table, rounds: int | None, more: Sequence[str] = ()) -> list[str]:
    """The command line of a table, from the repository's root and without the interpreter."""
    count = table.rounds if rounds is None else min(rounds, table.rounds)
    return [f"benchmarks/{table.script}", *table.arguments, "--rounds", str(count), *more]


def output_of(arguments: Sequence[str]) -> str:
    """What a command prints; its warnings stay on the terminal.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    run = [sys.executable, "-W", "ignore", *arguments]
    return subprocess.run(run, cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=True).stdout


def section(table: Table, arguments: Sequence[str], printed: str) -> list[str]:
    """Lines of one table: heading, command, and what it printed."""
    return [f"## {table.title}", "", f"`python {' '.join(arguments)}`", "", *printed.strip().splitlines(), ""]


def make(
    tables: dict[str, Table], args: argparse.Namespace, output: Callable[[Sequence[str]], str] = output_of
) -> list[str]:
    """Make the tables one by one, writing after each, and return the names of those that failed."""
    lines = [f"# Speed, {datetime.date.today()}", "", *description(), ""]
    lines += ["Ratios are to stock fairseq in the same process and round: median and quartiles; below 1 is faster.", ""]
    failed = []
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        arguments = command(table, args.rounds, args.more)
        print(f"{name}: python {' '.join(arguments)}", flush=True)
        try:
            printed = output(arguments)
        except subprocess.CalledProcessError as error:
            failed.append(name)
            printed = f"{error.output or ''}\n\nFailed with exit code {error.returncode}."
        lines += section(table, arguments, printed)
        args.out.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return failed


def main(argv: Sequence[str] | None = None) -> int:
    """Make what was asked for; 1 if a table failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="the tables for one GPU")
    parser.add_argument("--only", metavar="NAMES", help=f"of {', '.join(CPU_TABLES)}; --gpu: {', '.join(GPU_TABLES)}")
    parser.add_argument(
        "--engines",
        nargs=3,
        metavar=("PACKAGE", "SOURCE", "REFERENCE"),
        help="also the engines of a package of fairseq-deep package, on raw text and its translation",
    )
    parser.add_argument("--rounds", type=int, help="at most so many rounds for each table")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/HOST.md, gpu_NAME.md with --gpu")
    parser.add_argument("more", nargs="*", help="after --: more flags for every script, such as --threads 2")
    args = parser.parse_args(argv)
    tables = dict(GPU_TABLES if args.gpu else CPU_TABLES)
    if args.engines:
        tables["engines"] = Table("Engines of a package", "engines_time.py", tuple(args.engines), 3)
    wanted = args.only.split(",") if args.only else list(tables)
    unknown = [name for name in wanted if name not in tables]
    if unknown:
        parser.error(f"unknown --only {', '.join(unknown)}; there are {', '.join(tables)}")
    if args.rounds is not None and args.rounds < 1:
        parser.error(f"--rounds must be at least 1, not {args.rounds}")
    args.out = args.out or HERE / "results" / f"{gpu_name() if args.gpu else platform.node() or 'machine'}.md"
    failed = make({name: tables[name] for name in wanted}, args)
    print(f"{args.out}{': failed: ' + ', '.join(failed) if failed else ''}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
