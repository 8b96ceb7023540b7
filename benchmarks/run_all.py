"""Every table of speed on this machine: calls the other scripts here, one a table, and adds each cell to a TSV file.

The rows of ``SCRIPT.py`` are in ``SCRIPT.tsv``, each as soon as it is printed. A table that fails is named in the file
and on the terminal, and the exit code is then 1. Run it from the repository's root: ``python benchmarks/run_all.py
--help``; for a GPU see ``benchmarks/gpu.sh``.
"""

import argparse
import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8", "bf16", "i8mm")
"""Words of ``/proc/cpuinfo`` on which the speed of a precision depends."""
PACKAGES = ("torch", "fairseq-fixed", "numpy")
_FEW = "post_ln,admin,b2t,dsinit_matt,rezero"
_60_12 = "--layers 60 --decoder-layers 12 --width 128"
COLUMNS = ("machine", "revision", "measurement", "row", "column", "value")
Cell = tuple[str, str, str]
"""Row, column and value."""
DEEP = "post_ln,pre_ln,admin,b2t,dsinit_matt,rezero,dlcl,dlcl_post_ln"


class Table(NamedTuple):
    """One table: a script, its arguments, and the rounds it takes."""

    script: str
    arguments: str
    rounds: int


CPU_TABLES = {
    "step": Table("step_time.py", "", 15),
    "step-amp": Table("step_time.py", f"--amp --methods {_FEW}", 15),
    "step-amp-fused": Table("step_time.py", f"--amp --optimizer fused_adam --methods {_FEW}", 15),
    "step-60-12": Table("step_time.py", f"{_60_12} --methods {DEEP}", 7),
    "step-60-12-fused": Table("step_time.py", f"{_60_12} --optimizer fused_adam --methods {DEEP}", 7),
    "step-100-100": Table("step_time.py", "--layers 100 --width 64", 7),
    "step-profile": Table("step_profile.py", "--optimizer fused_adam", 5),
    "loss": Table("output_and_loss.py", "", 9),
    "optimizer": Table("optimizer_time.py", "", 25),
    "decode": Table("decode_time.py", "--layers 6", 9),
    "decode-12-12": Table("decode_time.py", "", 9),
}
_BATCH = "--device cuda --sentences 512 --length 8 --vocabulary 32000"
GPU_TABLES = {
    f"step-{precision}": Table(
        "step_time.py", f"{_BATCH} --precision {precision} --stock-precision fp16 --methods {_FEW}", 15
    )
    for precision in ("fp16", "bf16")
} | {
    f"step-{layers}-{decoder}-{precision}": Table(
        "step_time.py",
        f"--device cuda --sentences 128 --together 4 --methods {DEEP} --precision {precision} --layers {layers} "
        f"--decoder-layers {decoder} --width {width}",
        5,
    )
    for layers, decoder, width in ((18, 18, 512), (60, 12, 512), (100, 100, 256))
    for precision in (("fp16", "bf16") if layers < 100 else ("fp16",))
}
GPU_TABLES |= {
    "decode": Table("decode_time.py", "--device cuda --half --sentences 64 --searches fairseq,lean,graphs", 5),
    "optimizer": Table("optimizer_time.py", "--device cuda --width 512", 15),
    "loss": Table("output_and_loss.py", "--device cuda --precision fp16", 15),
    "profile": Table("profile_cost.py", f"{_BATCH} --precision fp16 --layers 18", 9),
    "training": Table("training_to_bleu.py", "", 3),
}


def revision() -> str:
    """The commit of the checkout, with a plus for changes to it; ``unknown`` without git."""
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"


def gpu_name() -> str:
    """The name of this machine's GPU, such as ``NVIDIA L4``."""
    import torch

    if not torch.cuda.is_available():
        sys.exit("error: torch finds no GPU here; docs/installation.md says what to install")
    return torch.cuda.get_device_name()


def description(gpu: bool, cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """The machine, its processor with its flags, cores, load, versions, revision and day."""
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    entries = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = set((entries.get("flags") or entries.get("Features") or "").split())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    processor = entries.get("model name") or platform.processor() or platform.machine()
    return {
        "machine": gpu_name() if gpu else processor,
        "revision": revision(),
        "processor": processor,
        "flags": ", ".join(flag for flag in FLAGS if flag in flags) or "none of " + ", ".join(FLAGS),
        "cores": f"{cores}; load when it began: {os.getloadavg()[0]:.1f}",
        "versions": f"Python {platform.python_version()}, {versions}",
        "date": str(datetime.date.today()),
    }


def command(table: Table, rounds: int | None, more: Sequence[str] = ()) -> list[str]:
    """The command line of a table, from the repository's root and without the interpreter."""
    count = table.rounds if rounds is None else min(rounds, table.rounds)
    return [f"benchmarks/{table.script}", *table.arguments.split(), "--rounds", str(count), *more]


def output_of(arguments: Sequence[str]) -> Iterator[str]:
    """Lines that a command prints; its warnings stay on the terminal.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    run = [sys.executable, "-W", "ignore", *arguments]
    with subprocess.Popen(run, cwd=HERE.parent, stdout=subprocess.PIPE, text=True) as process:
        yield from process.stdout or ()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, run)


def cells(lines: Iterable[str]) -> Iterator[Cell]:
    """Each cell of the Markdown tables among the lines; each other line is the value of no row and no column."""
    header: list[str] = []
    for line in (line.strip() for line in lines):
        if not line.startswith("|"):
            header = []
            yield from [("", "", line)] if line else ()
            continue
        first, *others = (cell.strip() for cell in line[1:-1].split("|"))
        if not header:
            header = others
        elif set(line) - set("|-: "):
            yield from ((first, column, value) for column, value in zip(header, others, strict=True) if value)


def keep(out: Path, kind: str, name: str, about: Mapping[str, str], found: Iterable[Cell]) -> None:
    """Add what was measured, ``found``, to ``KIND.tsv`` in ``out``, each cell as soon as it is there."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{kind}.tsv"
    head = [] if path.exists() else [COLUMNS]
    with path.open("a", encoding="utf-8", buffering=1) as file:
        for row in chain(head, ((about["machine"], about["revision"], name, *cell) for cell in found)):
            print(*(" ".join(cell.split()) for cell in row), sep="\t", file=file)


def facts(about: Mapping[str, str], words: str) -> list[Cell]:
    """Facts about a measurement: its command, and where it was made."""
    known = {"command": words, **about}
    return [("", column, value) for column, value in known.items() if column not in COLUMNS]


def make(
    tables: dict[str, Table], args: argparse.Namespace, output: Callable[[Sequence[str]], Iterator[str]] = output_of
) -> list[str]:
    """Make the tables one by one, and return the names of those that failed."""
    about, failed = description(args.gpu), []
    for name, table in tables.items():
        arguments, kind = command(table, args.rounds, args.more), table.script.removesuffix(".py")
        words = f"python {' '.join(arguments)}"
        print(f"{name}: {words}", flush=True)
        try:
            keep(args.out, kind, name, about, chain(facts(about, words), cells(output(arguments))))
        except subprocess.CalledProcessError as error:
            failed.append(name)
            keep(args.out, kind, name, about, [("", "exit code", str(error.returncode))])
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
    parser.add_argument("--out", type=Path, default=HERE / "results", help="gets the files; default: %(default)s")
    parser.add_argument(
        "--keep", nargs=3, metavar=("KIND", "NAME", "COMMAND"), help="only add standard input, which COMMAND printed"
    )
    parser.add_argument("more", nargs="*", help="after --: more flags for every script, such as --threads 2")
    args = parser.parse_args(argv)
    if args.keep:
        kind, name, words = args.keep
        about = description(args.gpu)
        keep(args.out, kind, name, about, chain(facts(about, words), cells(sys.stdin)))
        return 0
    tables = dict(GPU_TABLES if args.gpu else CPU_TABLES)
    if args.engines:
        tables["engines"] = Table("engines_time.py", " ".join(args.engines), 3)
    wanted = args.only.split(",") if args.only else list(tables)
    unknown = [name for name in wanted if name not in tables]
    if unknown:
        parser.error(f"unknown --only {', '.join(unknown)}; there are {', '.join(tables)}")
    if args.rounds is not None and args.rounds < 1:
        parser.error(f"--rounds must be at least 1, not {args.rounds}")
    failed = make({name: tables[name] for name in wanted}, args)
    print(f"{args.out}{': failed: ' + ', '.join(failed) if failed else ''}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
