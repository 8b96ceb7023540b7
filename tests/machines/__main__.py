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
from collections.abc import Sequence

from fairseq_plugins.tables import markdown_table
from tests.machines.listed import MACHINES, ROOT, Machine

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
