"""Several processes on CPUs: fairseq starts none and reports success, or refuses the default ``--ddp-backend``.

It starts as many processes as there are GPUs, so ``--distributed-world-size 2`` with an address exits with 0 having
trained nothing, and without one stops at an assertion; DistributedDataParallel gets a GPU number; logs that cannot be
summed travel in GPU memory. https://github.com/facebookresearch/fairseq/issues/2879
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from fairseq.distributed import utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from torch.multiprocessing.spawn import ProcessRaisedException

from fairseq_plugins.errors import raised_in_worker
from fairseq_plugins.patches.wrapping import wrap

LAUNCHER_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
"""Environment variables that torchrun sets for each process."""


def on_cpu(cfg: Any) -> bool:
    """Return whether this run uses no accelerator, by choice or because there is none."""
    return not cfg.common.tpu and (cfg.common.cpu or not torch.cuda.is_available())


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def address_processes(settings: Any) -> None:
    """Fill in what fairseq infers from GPUs: the address of the processes, and their backend.

    Args:
        settings: the ``distributed_training`` group; changed in place. Under torchrun this process is one of the ranks;
            otherwise the ranks are started here, on this machine, and not reachable from outside.
    """
    if settings.distributed_init_method is None and all(name in os.environ for name in LAUNCHER_VARIABLES):
        settings.distributed_init_method = "env://"
        settings.distributed_world_size = int(os.environ["WORLD_SIZE"])
        settings.distributed_rank = int(os.environ["RANK"])
        settings.distributed_no_spawn = True
    if settings.distributed_world_size == 1:
        return
    if settings.distributed_init_method is None:
        port = settings.distributed_port if settings.distributed_port > 0 else free_port()
        settings.distributed_init_method = f"tcp://localhost:{port}"
    if settings.distributed_backend == "nccl":
        settings.distributed_backend = "gloo"


def worker(index: int, main: Callable[..., Any], cfg: Any, kwargs: dict[str, Any]) -> None:
    """Run one rank. It is defined here, not in fairseq, so that a new process imports the plugin first."""
    distributed_utils.distributed_main(index, main, cfg, kwargs)


def start_processes(cfg: Any, main: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Start every rank of this run on this machine and wait for them."""
    settings = cfg.distributed_training
    first, settings.distributed_rank = settings.distributed_rank, None
    kwargs["start_rank"] = first
    count = settings.distributed_world_size - first
    torch.multiprocessing.spawn(worker, args=(main, cfg, kwargs), nprocs=count, join=True)


def call_main_anywhere(call_main: Callable[..., Any], cfg: Any, main: Callable[..., Any], **kwargs: Any) -> None:
    """``call_main`` that counts processes instead of GPUs if there are no GPUs.

    Raises:
        UserError: a rank raised one; processes pass it on only as text.
    """
    settings = cfg.distributed_training
    if on_cpu(cfg):
        address_processes(settings)
    try:
        if on_cpu(cfg) and settings.distributed_world_size > 1 and not settings.distributed_no_spawn:
            start_processes(cfg, main, kwargs)
        else:
            call_main(cfg, main, **kwargs)
    except ProcessRaisedException as error:
        mistake = raised_in_worker(str(error))
        if mistake is not None:
            raise mistake from error
        raise


def parallel_on_module_device(parallel: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``DistributedDataParallel`` that gets a GPU number only for a module on a GPU."""
    module = kwargs.get("module", args[0] if args else None)
    if module is not None and next(module.parameters()).device.type == "cpu":
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


def apply() -> None:
    """Wrap the start of every command, the wrapper of the model, and the gathering of logs."""
    wrap(distributed_utils, "call_main", call_main_anywhere, order=40)
    wrap(distributed_utils, "all_gather_list", gather_in_main_memory)
    wrap(distributed_fairseq_model, "DistributedDataParallel", parallel_on_module_device)
