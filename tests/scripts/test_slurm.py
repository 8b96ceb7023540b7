"""``scripts/slurm.sh`` under a Slurm of a few lines that really starts a process for each of two machines."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.distributed.elastic.utils.distributed import get_free_port

from fairseq_plugins.tools.pipeline.run import Request
from tests import toy
from tests.scripts.fakes import program, slurm_of_two_nodes
from tests.scripts.running import ROOT
from tests.scripts.test_evaluate import prepare
from tests.scripts.test_train import LAST, POST_LN, SMALL, needs_cpu, train_here

SCRIPTS = ROOT / "scripts"


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """The environment of a job on two machines, a copy of the script as sbatch makes it, and a Python that prints."""
    scripts = tmp_path / "my repository" / "scripts"
    scripts.mkdir(parents=True)
    shutil.copy(SCRIPTS / "lib.sh", scripts)
    shutil.copy(SCRIPTS / "slurm.sh", tmp_path / "slurm_script")
    told = """line=$(printf '%s|' "$SLURM_CPUS_PER_TASK" "${@:3}"); echo "$line"; exit "${CODE:-0}\""""
    python = program(tmp_path / "python", f"#!/usr/bin/env bash\n{told}\n")
    return {**slurm_of_two_nodes(tmp_path), "SLURM_SUBMIT_DIR": str(tmp_path / "my repository"), "PYTHON": python}


def call(environment: dict[str, str], *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(cwd / "slurm_script"), *arguments]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=600)


ARGUMENTS = ("configs/a b.yaml", "data", "run", "common.seed=2")


def test_each_machine_is_told_its_place_and_port_and_its_code_is_ours(slurm: dict[str, str], tmp_path: Path) -> None:
    done = call(slurm, *ARGUMENTS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said, *machines = done.stdout.splitlines()
    assert said == "job 4000123: 2 nodes with 32 CPUs each, machine 0 is localhost:10123"
    place = "32|run|--nodes|2|--master-addr|localhost|--master-port|10123"
    given = "configs/a b.yaml|data|run|common.seed=2"
    assert sorted(machines) == [f"{place}|{given}|--rank|0|", f"{place}|{given}|--rank|1|"]
    done = call({**slurm, "CODE": "1"}, *ARGUMENTS, "--master-port=7", cwd=tmp_path)
    assert done.returncode == 1
    # The last one counts.
    assert "|--master-port|10123|configs/a b.yaml|data|run|common.seed=2|--master-port=7|--rank|0|" in done.stdout


def test_a_mistake_is_one_line(slurm: dict[str, str], tmp_path: Path) -> None:
    words = "give CONFIG DATA RUN, or a script of scripts/reproduce; --help says more"
    said = []
    mistakes: tuple[tuple[tuple[str, ...], dict[str, str], str], ...] = (
        (ARGUMENTS, {"SLURM_JOB_ID": ""}, "this is no Slurm job; submit it: sbatch [OPTION ...] scripts/slurm.sh"),
        (ARGUMENTS, {"SLURM_JOB_NODELIST": "other"}, "scontrol does not know the nodes 'other'"),
        (ARGUMENTS, {"SLURM_SUBMIT_DIR": "/nowhere"}, "/nowhere: holds no scripts/lib.sh; submit from the top of"),
        (("scripts/reproduce/admin_tabel2.sh",), {}, "scripts/reproduce/admin_tabel2.sh: no such file"),
        (("configs/a.yaml", "data"), {}, words),
        ((), {}, words),
    )
    for arguments, changes, message in mistakes:
        done = call({**slurm, **changes}, *arguments, cwd=tmp_path)
        one_line = done.stderr.startswith(f"error: {message}") and done.stderr.count("\n") == 1
        said += [] if done.returncode == 2 and one_line else [done.stderr]
    assert said == []


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """The environment of a job in this repository, and where its port and its Pythons are its own."""
    shutil.copy(SCRIPTS / "slurm.sh", tmp_path / "slurm_script")
    watched = f"""[[ $1 != -m ]] || printf '%s %s\\n' "${{SLURM_NODEID:-batch}}" "$3" >>"{tmp_path}/asked"
exec {sys.executable} "$@"
"""
    python = program(tmp_path / "python", f"#!/usr/bin/env bash\n{watched}")
    own = {"MASTER_PORT": str(get_free_port()), "PYTHON": python, "PYTHONPATH": str(ROOT)}
    return {**slurm_of_two_nodes(tmp_path), "SLURM_SUBMIT_DIR": str(ROOT), **own}


@needs_cpu
@pytest.mark.slow
def test_a_chain_trains_on_all_machines_and_does_all_else_once(job: dict[str, str], tmp_path: Path) -> None:
    """Each machine takes one of the two batches of an update: the weights are those of one process that takes both."""
    data, out = prepare(tmp_path / "data"), tmp_path / "out"
    changes = (*SMALL, "optimization.update_freq=[2]", "optimization.max_update=7", "model.dropout=0")
    chain = ("compare", str(data), str(out), str(POST_LN), *changes)
    options = ("--quiet", "--average", "none", "--device", "cpu", "--beam", "1", "--seeds", "3")
    done = call(job, *chain, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    run = out / "post_ln_3e3d" / "seed3"
    expected = toy.weights_of(train_here(Request(POST_LN, data, tmp_path / "one", (*changes, "common.seed=3"))))
    torch.testing.assert_close(toy.weights_of(run / "checkpoints" / LAST), expected, rtol=1e-5, atol=1e-6)
    record = json.loads((run / "run.json").read_text())
    assert (record["nodes"], record["processes"], record["update_freq"]) == (2, 2, [1])

    assert sorted((tmp_path / "asked").read_text().splitlines()) == ["0 run", "1 run", "batch compare"]
    assert done.stdout.count("hypotheses.tok: creating") == 1
    assert (out / "report" / "report.csv").is_file()
    assert [path.parent.name for path in run.glob("evaluation/*/score.json")] == ["test"]
