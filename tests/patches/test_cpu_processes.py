"""Processes on CPUs: stock has none. What two of them compute is in ``tests/contract/test_two_processes.py``."""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import train
from torch.distributed.elastic.utils.distributed import get_free_port

from fairseq_plugins.patches import cpu_processes
from tests import toy

TWO = ("--distributed-world-size", "2")


@pytest.mark.skipif(torch.cuda.is_available(), reason="fairseq counts GPUs, and there is one")
def test_stock_trains_nothing(toy_data: Path, tmp_path: Path) -> None:
    def start(*flags: str) -> None:
        config = toy.parse_training(toy_data, tmp_path, "--max-update", "3", *TWO, *flags)
        inspect.unwrap(distributed_utils.call_main)(config, train.main)

    start("--distributed-init-method", f"tcp://localhost:{get_free_port()}")
    assert not list(tmp_path.iterdir())
    with pytest.raises(AssertionError, match="available devices"):
        start()


def test_the_address_of_the_processes(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ("--distributed-init-method", "tcp://localhost:1234", "--distributed-backend", "mpi", *TWO)
    given = toy.parse_training(toy_data, tmp_path, *chosen).distributed_training
    cpu_processes.address_processes(given)
    assert (given.distributed_init_method, given.distributed_backend) == ("tcp://localhost:1234", "mpi")

    launcher = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29511", "WORLD_SIZE": "4", "RANK": "3"}
    for name, value in launcher.items():
        monkeypatch.setitem(os.environ, name, value)
    rank = toy.parse_training(toy_data, tmp_path).distributed_training
    cpu_processes.address_processes(rank)
    assert (rank.distributed_init_method, rank.distributed_backend) == ("env://", "gloo")
    assert (rank.distributed_world_size, rank.distributed_rank, rank.distributed_no_spawn) == (4, 3, True)

    # A launcher of one process, too, has fairseq join a group, and stock's nccl needs GPUs.
    monkeypatch.setitem(os.environ, "WORLD_SIZE", "1")
    alone = toy.parse_training(toy_data, tmp_path).distributed_training
    cpu_processes.address_processes(alone)
    assert (alone.distributed_init_method, alone.distributed_backend) == ("env://", "gloo")


def test_on_gpus_torchrun_has_the_number_of_processes(
    toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fairseq looks for a launcher only where a training has several processes: each would train a model of its own."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    config = toy.parse_training(toy_data, tmp_path, "--distributed-world-size", "1")
    config.common.cpu = False
    settings = config.distributed_training

    def infer(*_: object) -> None:
        distributed_utils.infer_init_method(settings)

    for name, value in {"MASTER_ADDR": "localhost", "MASTER_PORT": "29511", "WORLD_SIZE": "4", "RANK": "3"}.items():
        monkeypatch.setitem(os.environ, name, value)
    cpu_processes.call_main_anywhere(infer, config, train.main)
    assert (settings.distributed_world_size, settings.distributed_rank, settings.device_id) == (4, 3, 3)


def test_logs_that_cannot_be_summed_are_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch puts its own in its place
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    logs = {"hypotheses": ["eins", "zwei"], "loss": 1.5}
    try:
        assert distributed_utils.all_gather_list([logs], group=dist.group.WORLD) == [[logs]]
    finally:
        dist.destroy_process_group()
