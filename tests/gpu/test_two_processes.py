"""Two processes on pretended GPUs, with gloo in the place of NCCL: what they train is what two on CPUs do."""

import functools
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import train

from fairseq_plugins.training.cuda_graphs import Graphs
from tests import toy
from tests.faults.exact import differences
from tests.gpu.pretend import on_gpu
from tests.representatives import slow_but

SGD = ("--optimizer", "sgd", "--lr", "0.1", "--clip-norm", "0")
"""A key's bias has rounding for a gradient; Adam makes whole steps of it, and each processor rounds its own way."""


def trained(data: Path, directory: Path, *flags: str) -> dict[str, Any]:
    """The checkpoint of two processes, which are forks of this one, on GPUs if there are any."""
    common = ("--dropout", "0", "--no-epoch-checkpoints", "--max-update", "3", "--distributed-world-size", "2")
    config = toy.parse_training(data, directory, *common, *flags, arch="admin_transformer")
    config.common.cpu = not torch.cuda.is_available()
    toy.forget_earlier_trainings()
    forked = functools.partial(torch.multiprocessing.start_processes, start_method="fork")
    with mock.patch.object(torch.multiprocessing, "spawn", forked):
        distributed_utils.call_main(config, train.main)
    state: dict[str, Any] = torch.load(directory / "checkpoint_last.pt", weights_only=True)
    return state


@pytest.fixture(scope="module")
def on_cpus(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return trained(toy_data, tmp_path_factory.mktemp("cpus"), *SGD)


@pytest.mark.parametrize("backend", ["pytorch_ddp", "legacy_ddp"])
@pytest.mark.slow
def test_weights_and_the_joint_profile_are_those_of_cpus(backend, on_cpus, toy_data, tmp_path):
    found = on_gpu(trained, toy_data, tmp_path, *SGD, "--ddp-backend", backend, count=2)
    for name, value in on_cpus["model"].items():
        torch.testing.assert_close(found["model"][name], value, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("precision", slow_but((), ("--bf16", "--fp16", "float32")))
def test_graphs_of_two_processes(precision: str, toy_data: Path, tmp_path: Path) -> None:
    """Their gradients are added up in one tensor; the numbers are those of eager processes, bit for bit."""
    flags = [] if precision == "float32" else [precision]
    flags += "--ddp-backend legacy_ddp --max-tokens 300 --max-update 12 --dropout 0.1 --log-format simple".split()
    summary = Graphs.summary

    def noted(graphs: Graphs) -> str:
        (tmp_path / f"rank{os.getpid()}").write_text(f"{graphs.stopped}{graphs.counts['replayed']}")
        return summary(graphs)

    with mock.patch.object(Graphs, "summary", noted):
        eager, graphs = (
            on_gpu(trained, toy_data, tmp_path / name, *flags, *more, count=2)
            for name, more in (("eager", []), ("graphs", ["--cuda-graphs", "--length-grid", "1"]))
        )
    for part in ("model", "last_optimizer_state"):
        assert differences(eager[part], graphs[part]) == []
    assert [int(rank.read_text()) > 3 for rank in tmp_path.glob("rank*")] == [True, True]
