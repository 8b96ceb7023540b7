"""Several processes on CPUs: fairseq starts none and reports success, or refuses the default ``--ddp-backend``.

It starts as many processes as there are GPUs, so ``--distributed-world-size 2`` with an address exits with 0 having
trained nothing, and without one stops at an assertion; DistributedDataParallel gets a GPU number; logs that cannot be
summed travel in GPU memory. https://github.com/facebookresearch/fairseq/issues/2879
On GPUs, too, it ignores torchrun where the configuration has a world size of 1: each process trains a model of its own.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from fairseq.distributed import utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from torch.distributed.elastic.utils.distributed import get_free_port

from fairseq_plugins.wrapping import replaced

LAUNCHER_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
"""Environment variables that torchrun sets for each process."""


def launched(settings: Any) -> bool:
    """Whether torchrun has started this process as one rank of a group, and the user gave no other address."""
    return settings.distributed_init_method is None and all(name in os.environ for name in LAUNCHER_VARIABLES)


def address_processes(settings: Any) -> None:
    """Fill in values that fairseq infers from GPUs, in the group ``distributed_training``: address and backend.

    Under torchrun this process is a rank; otherwise the ranks are started here, and not reachable from outside.
    """
    if launched(settings):
        settings.distributed_init_method = "env://"
        settings.distributed_world_size = int(os.environ["WORLD_SIZE"])
        settings.distributed_rank = int(os.environ["RANK"])
        settings.distributed_no_spawn = True
    if settings.distributed_world_size > 1 and settings.distributed_init_method is None:
        port = settings.distributed_port if settings.distributed_port > 0 else get_free_port()
        settings.distributed_init_method = f"tcp://localhost:{port}"
    if settings.distributed_backend == "nccl":
        settings.distributed_backend = "gloo"


def call_main_anywhere(call_main: Callable[..., Any], cfg: Any, main: Callable[..., Any], **kwargs: Any) -> None:
    """``call_main`` that counts processes instead of GPUs if there are no GPUs, or none is wanted."""
    settings = cfg.distributed_training
    if cfg.common.tpu or (torch.cuda.is_available() and not cfg.common.cpu):
        if launched(settings):
            settings.distributed_world_size = int(os.environ["WORLD_SIZE"])
        call_main(cfg, main, **kwargs)
        return
    address_processes(settings)
    if settings.distributed_world_size == 1 or settings.distributed_no_spawn:
        call_main(cfg, main, **kwargs)
        return
    here = settings.distributed_world_size - settings.distributed_rank
    with replaced(torch.cuda, device_count=lambda: here):
        call_main(cfg, main, **kwargs)


def parallel_on_module_device(parallel: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``DistributedDataParallel`` that gets a GPU number only for a module on a GPU."""
    if next(kwargs["module"].parameters()).device.type == "cpu":
        kwargs.update(device_ids=None, output_device=None)
    return parallel(*args, **kwargs)


def gather_in_main_memory(
    all_gather_list: Callable[..., list[Any]], data: Any, group: Any = None, max_size: int = 16384
) -> list[Any]:
    """``all_gather_list`` without GPU memory if the backend is gloo."""
    group = distributed_utils.get_global_group() if group is None else group
    if dist.get_backend(group) != "gloo":
        return all_gather_list(data, group, max_size)
    gathered: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(gathered, data, group=group)
    return gathered


WRAPPED = (
    (distributed_utils, "call_main", call_main_anywhere, 40),
    (distributed_utils, "all_gather_list", gather_in_main_memory),
    (distributed_fairseq_model, "DistributedDataParallel", parallel_on_module_device),
)
