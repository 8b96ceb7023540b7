"""``scripts/slurm.sh`` under a Slurm of three lines: each machine is told its place, and Slurm its exit code."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
SCONTROL = """#!/usr/bin/env bash
[[ "$*" == "show hostnames gpu[07-08]" ]] && printf 'gpu07\\ngpu08\\n'
"""
SRUN = """#!/usr/bin/env bash
while [[ $1 != bash ]]; do shift; done
for SLURM_NODEID in 0 1; do export SLURM_NODEID; "$@" || exit; done
"""
TRAIN = """#!/usr/bin/env bash
printf '%s|' "$RANK" "$NODES" "$MASTER_ADDR" "$MASTER_PORT" "$@"; echo
exit "${CODE:-0}"
"""


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """The environment of a job on two machines; the script stands where sbatch copies it to."""
    files = {"bin/scontrol": SCONTROL, "bin/srun": SRUN, "my repository/scripts/train.sh": TRAIN}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    shutil.copy(SCRIPTS / "lib.sh", tmp_path / "my repository" / "scripts")
    shutil.copy(SCRIPTS / "slurm.sh", tmp_path / "slurm_script")
    job = {"SLURM_JOB_ID": "4000123", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "gpu[07-08]"}
    submitted = {"SLURM_SUBMIT_DIR": str(tmp_path / "my repository")}
    return {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", **job, **submitted}


def call(environment: dict[str, str], *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(cwd / "slurm_script"), *arguments]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=60)


ARGUMENTS = ("configs/a b.yaml", "data", "run", "common.seed=2")


def test_each_machine_is_told_its_place(slurm: dict[str, str], tmp_path: Path) -> None:
    done = call(slurm, *ARGUMENTS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "job 4000123: 2 nodes, machine 0 is gpu07:10123",
        "0|2|gpu07|10123|configs/a b.yaml|data|run|common.seed=2|",
        "1|2|gpu07|10123|configs/a b.yaml|data|run|common.seed=2|",
    ]


def test_the_exit_code_and_a_port_of_ones_own(slurm: dict[str, str], tmp_path: Path) -> None:
    done = call({**slurm, "CODE": "1", "MASTER_PORT": "7"}, *ARGUMENTS, cwd=tmp_path)
    assert done.returncode == 1
    assert "0|2|gpu07|7|" in done.stdout


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"SLURM_JOB_ID": ""}, "error: this is no Slurm job; submit it: sbatch [OPTION ...] scripts/slurm.sh"),
        ({"SLURM_JOB_NODELIST": "other"}, "error: scontrol does not know the nodes 'other'"),
        ({"SLURM_SUBMIT_DIR": "/"}, "error: /: holds no scripts/train.sh; submit from the top of the repository"),
    ],
)
def test_mistakes(slurm: dict[str, str], tmp_path: Path, changes: dict[str, str], message: str) -> None:
    done = call({**slurm, **changes}, *ARGUMENTS, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1
