"""Stand-ins for programs of the scripts that take too long or are not installed."""

import os
import sys
from pathlib import Path


def program(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def without_binarising(here: Path) -> str:
    """A Python for PYTHON that records calls of fairseq's preprocessing instead of binarising, which takes seconds."""
    (here / "stand-in").mkdir(exist_ok=True)
    (here / "stand-in" / "sitecustomize.py").write_text(
        f"""import os, sys
words = sys.orig_argv[1:]
if words[:3] == ["-m", "fairseq_plugins.tools.cli", "preprocess"]:
    with open({str(here / "asked")!r}, "a") as asked:
        print(*words, file=asked)
    os.makedirs(words[words.index("--destdir") + 1], exist_ok=True)
    os._exit(0)
"""
    )
    stand_in = f'#!/usr/bin/env bash\nPYTHONPATH="{here}/stand-in:$PYTHONPATH" exec {sys.executable} "$@"\n'
    return program(here / "python", stand_in)


SCONTROL = """#!/usr/bin/env bash
[[ "$*" == "show hostnames gpu[07-08]" ]] && printf 'localhost\\nlocalhost\\n'
"""
SRUN = f"""#!{sys.executable}
import argparse, os, subprocess, sys, time

flags = argparse.ArgumentParser(allow_abbrev=False)
for name in ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "kill-on-bad-exit", "wait"):
    flags.add_argument(f"--{{name}}", type=int, required=True)
flags.add_argument("command", nargs=argparse.REMAINDER)
asked = flags.parse_args()
assert asked.ntasks == asked.nodes * asked.ntasks_per_node
for name in ("SLURM_CPUS_PER_GPU", "SLURM_TRES_PER_TASK"):
    if name in os.environ:
        sys.exit(f"srun: fatal: {{name}} and --cpus-per-task are mutually exclusive")
tasks = [
    subprocess.Popen(asked.command, env={{**os.environ, "SLURM_NODEID": str(node // asked.ntasks_per_node),
                                         "SLURM_CPUS_PER_TASK": str(asked.cpus_per_task)}})
    for node in range(asked.ntasks)
]
first = None
while any(task.poll() is None for task in tasks):
    ended = [task for task in tasks if task.poll() is not None]
    first = first or (time.monotonic() if ended else None)
    bad = asked.kill_on_bad_exit and any(task.returncode for task in ended)
    if bad or (first and asked.wait and time.monotonic() > first + asked.wait):
        for task in tasks:
            task.kill()
    time.sleep(0.05)
sys.exit(max(code if code >= 0 else 128 - code for code in (task.returncode for task in tasks)))
"""


def slurm_of_two_nodes(here: Path) -> dict[str, str]:
    """The environment of a job on two nodes, whose tasks ``srun`` starts on this machine, all at once as Slurm does."""
    program(here / "bin" / "scontrol", SCONTROL)
    program(here / "bin" / "srun", SRUN)
    job = {"SLURM_JOB_ID": "4000123", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "gpu[07-08]"}
    # sbatch --cpus-per-task 4 --ntasks-per-node 8 gives this on one node of 32 CPUs and one of 48.
    cpus = {"SLURM_JOB_CPUS_PER_NODE": "48,32", "SLURM_CPUS_PER_TASK": "4", "SLURM_TRES_PER_TASK": "cpu=4"}
    return {**os.environ, "PATH": f"{here}/bin:{os.environ['PATH']}", **job, **cpus}
