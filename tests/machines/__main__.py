"""Run the fast tests as other machines would: ``python -m tests.machines``.

The processor uses fewer of its instructions, the threads are two, the order is random, and the same run is repeated.
Exit code 0 if every run passed, 1 if one did not; the last lines are a table of the runs.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_plugins.tables import markdown_table

ROOT = Path(__file__).resolve().parents[2]
EVERYTHING = ("tests",)
NUMBERS = tuple(
    f"tests/{name}"
    for name in (
        "checkpoints contract core equivalence language_model methods observe recorded search speech_to_text training "
        "translator"
    ).split()
)
"""The parts that compute: their numbers depend on the order in which a processor adds."""


@dataclass(frozen=True)
class Machine:
    """A way to run the tests.

    Args:
        says: what it is, in a few words.
        environment: variables beside those that are set anyway.
        tests: files and directories.
        random_order: whether a seed draws the order of the tests.
        kernels: torch's name for the kernels that the variables select; empty if they select none.
    """

    says: str
    environment: Mapping[str, str] = field(default_factory=dict)
    tests: tuple[str, ...] = EVERYTHING
    random_order: bool = False
    kernels: str = ""


def _instructions(says: str, kernels: str, onednn: str, mkl: str) -> Machine:
    # Torch's own kernels, oneDNN's and MKL's heed a limit each; the matrix products are MKL's.
    limits = {"ATEN_CPU_CAPABILITY": kernels.lower(), "ONEDNN_MAX_CPU_ISA": onednn, "MKL_CBWR": mkl}
    return Machine(says, limits, NUMBERS, kernels=kernels)


MACHINES = {
    "sse": _instructions("no vector instructions newer than SSE4.1", "DEFAULT", "SSE41", "COMPATIBLE"),
    "avx2": _instructions("AVX2", "AVX2", "AVX2", "AVX2"),
    "avx512": _instructions("AVX-512 without its extensions for bfloat16", "AVX512", "AVX512_CORE", "AVX512"),
    "threads": Machine("two threads", {"TEST_THREADS": "2"}),
    "order": Machine("random order", random_order=True),
    "first": Machine("as always"),
    "second": Machine("as always, again"),
    "third": Machine("as always, once more"),
}
HEADER = ["machine", "what it is", "time", "result"]


def parser() -> argparse.ArgumentParser:
    """Flags of this module."""
    flags = argparse.ArgumentParser(prog="python -m tests.machines", description=__doc__)
    flags.add_argument("--only", nargs="+", choices=list(MACHINES), metavar="NAME", help=f"of {', '.join(MACHINES)}")
    flags.add_argument("--seed", type=int, help="of the random order (default: a new one, printed)")
    flags.add_argument("--workers", type=int, default=2, metavar="N", help="processes that test (default: 2)")
    flags.add_argument("--tests", nargs="+", metavar="PATH", help="these tests only (default: those of each machine)")
    return flags


def environment(machine: Machine) -> dict[str, str]:
    """This environment without the settings of another machine, and with those of ``machine``."""
    every = {name for one in MACHINES.values() for name in one.environment}
    kept = {name: value for name, value in os.environ.items() if name not in every}
    return {**kept, **machine.environment}


def can_be_run(machine: Machine) -> bool:
    """Whether this processor has the instructions: torch passes over a limit that is above them."""
    code = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment(machine), capture_output=True, text=True, check=True
    )
    return machine.kernels in ("", ended.stdout.strip())


def command(machine: Machine, tests: Sequence[str], workers: int, seed: int) -> list[str]:
    """The words of the run."""
    spread = ["-n", str(workers), "--dist", "worksteal"] if workers else []
    # Nothing but the order: with its own seeds for every generator the plugin would hide a test that leaves one unset.
    order = ["-p", "randomly", f"--randomly-seed={seed}", "--randomly-dont-reset-seed"] if machine.random_order else []
    return [sys.executable, "-m", "pytest", "-q", "-m", "not slow", *spread, *order, *(tests or machine.tests)]


def run(machine: Machine, words: Sequence[str]) -> tuple[int, str]:
    """Run and show it; return the exit code and the last line, which counts what passed."""
    last = ""
    with subprocess.Popen(words, env=environment(machine), cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip(" =\n") or last
    return process.returncode, last


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tests once for each machine; 1 if a run failed."""
    args = parser().parse_args(argv)
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(10**6)
    rows, failed = [], False
    for name in args.only or MACHINES:
        machine = MACHINES[name]
        says = f"{machine.says}, seed {seed}" if machine.random_order else machine.says
        print(f"\n{name}: {says}", flush=True)
        if not can_be_run(machine):
            rows.append([name, says, "-", "not run: this processor lacks the instructions"])
            continue
        start = time.monotonic()
        code, last = run(machine, command(machine, args.tests or [], args.workers, seed))
        failed = failed or code != 0
        rows.append(
            [name, says, f"{(time.monotonic() - start) / 60:.0f} min", last if code == 0 else f"FAILED: {last}"]
        )
    print(f"\n{markdown_table([HEADER, *rows], numbers=False)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
