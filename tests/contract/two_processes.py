"""What each of two processes does for test_two_processes: one step of each case on its half of a batch."""

from __future__ import annotations

import logging
from argparse import Namespace
from pathlib import Path

import torch
import torch.distributed as dist
from fairseq.models.distributed_fairseq_model import DistributedFairseqModel
from torch import Tensor, nn

from tests import models

WORLD_SIZE = 2
LEARNING_RATE = 0.1
BACKENDS = ("pytorch_ddp", "legacy_ddp")
HALF = 3


def model_and_batch(case: str) -> tuple[nn.Module, models.Batch]:
    """The model of a case without dropout, slightly off its start, in training mode; and the batch for both."""
    model = models.build(*models.CASES[case], "--dropout", "0", "--word-dropout", "0")
    models.perturb(model)
    return model.train(), models.batch(sentences=WORLD_SIZE * HALF)


def step(model: nn.Module, scale: float) -> dict[str, Tensor]:
    """One step of SGD on the gradients times ``scale``; returns the state dict."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(LEARNING_RATE * scale * parameter.grad)
    return {name: value.clone() for name, value in model.state_dict().items()}


def tokens(data: models.Batch) -> int:
    """Number of target tokens, the sample size of a whole batch."""
    return int(data.target.ne(models.dictionary().pad()).sum())


def distributed_step(case: str, backend: str, rank: int) -> dict[str, Tensor]:
    """As fairseq's trainer: summed losses, gradients averaged over the processes, scaled to a mean over tokens."""
    model, data = model_and_batch(case)
    settings = Namespace(
        tpu=False,
        ddp_backend=backend,
        device_id=0,
        broadcast_buffers=False,
        bucket_cap_mb=25,
        find_unused_parameters=False,
        gradient_as_bucket_view=False,
        ddp_comm_hook="none",
        heartbeat_timeout=-1,
    )
    parallel = DistributedFairseqModel(settings, model, dist.group.WORLD, torch.device("cpu"))
    models.loss_of(parallel, data.rows(rank * HALF, (rank + 1) * HALF)).backward()
    if hasattr(parallel, "all_reduce_grads"):
        parallel.all_reduce_grads()
    return step(model, WORLD_SIZE / tokens(data))


def work(rank: int, directory: str, pairs: list[tuple[str, str]]) -> None:
    """The whole life of process ``rank``; writes ``<rank>.pt``: state dicts by the ``pairs`` of case and backend."""
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/meeting", rank=rank, world_size=WORLD_SIZE)
    found = {f"{case} {backend}": distributed_step(case, backend, rank) for case, backend in pairs}
    torch.save(found, Path(directory) / f"{rank}.pt")
    dist.destroy_process_group()
