"""Several processes on CPUs: fairseq starts none and reports success, or refuses the default ``--ddp-backend``.

It starts as many processes as there are GPUs, so ``--distributed-world-size 2`` with an address exits with 0 having
trained nothing, and without one stops at an assertion; DistributedDataParallel is handed a GPU number; logs that
cannot be summed travel in GPU memory. https://github.com/facebookresearch/fairseq/issues/2879
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
"""What torchrun tells each process that it starts."""


def on_cpu(cfg: Any) -> bool:
    """Whether this run has no accelerator, by choice or by nature."""
    return not cfg.common.tpu and (cfg.common.cpu or not torch.cuda.is_available())


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def address_processes(settings: Any) -> None:
    """Fill in what fairseq infers from GPUs: how the processes find each other, and the backend they speak.

    Args:
        settings: the ``distributed_training`` group; changed in place. Under torchrun this process is one of the
            ranks; otherwise the ranks are started here, on this machine and reachable from nowhere else.
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
    """One rank. Its home is here, not in fairseq, so that a fresh process imports the plugin first."""
    distributed_utils.distributed_main(index, main, cfg, kwargs)


def start_processes(cfg: Any, main: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Start every rank of this run on this machine and wait for them."""
    settings = cfg.distributed_training
    first, settings.distributed_rank = settings.distributed_rank, None
    kwargs["start_rank"] = first
    count = settings.distributed_world_size - first
    torch.multiprocessing.spawn(worker, args=(main, cfg, kwargs), nprocs=count, join=True)


def call_main_anywhere(call_main: Callable[..., Any], cfg: Any, main: Callable[..., Any], **kwargs: Any) -> None:
    """``call_main`` that counts processes, not GPUs, where there are none.

    Raises:
        UserError: a rank raised one; it crosses the border between processes only as text.
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
    """``DistributedDataParallel`` that is told a GPU number only for a module that is on a GPU."""
    module = kwargs.get("module", args[0] if args else None)
    if module is not None and next(module.parameters()).device.type == "cpu":
        kwargs.update(device_ids=None, output_device=None)
    return parallel(*args, **kwargs)


def gather_in_main_memory(
    all_gather_list: Callable[..., list[Any]], data: Any, group: Any = None, max_size: int = 16384
) -> list[Any]:
    """``all_gather_list`` without GPU memory where the processes speak gloo."""
    group = distributed_utils.get_global_group() if group is None else group
    if dist.get_backend(group) != "gloo":
        return all_gather_list(data, group, max_size)
    gathered: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(gathered, data, group=group)
    return gathered


def apply() -> None:
    """Wrap the start of every command, the wrapper of the model, and the gathering of logs."""
    wrap(distributed_utils, "call_main", call_main_anywhere)
    wrap(distributed_utils, "all_gather_list", gather_in_main_memory)
    wrap(distributed_fairseq_model, "DistributedDataParallel", parallel_on_module_device)
