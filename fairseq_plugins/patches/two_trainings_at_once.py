"""Two trainings at once in one ``--save-dir`` overwrite each other's checkpoints, and both end with exit code 0.

The first process of a training locks ``.lock`` in the directory before it looks for a checkpoint there. The system
releases the lock when that process ends, however it ends, and workers that it has forked do not hold it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.wrapping import wrap

logger = logging.getLogger(__name__)

LOCK = ".lock"
_held: dict[Path, IO[str]] = {}
"""The locked file of the training of this process, if there is one."""


def raise_everywhere(trainer: Trainer, problem: str | None) -> None:
    """Raise the first process's problem in every process, so that none waits for it.

    Raises:
        UserError: there is a problem.
    """
    if trainer.data_parallel_world_size > 1 and not trainer.tpu:
        group = trainer.data_parallel_process_group
        problem = distributed_utils.broadcast_object(problem, src_rank=0, group=group, dist_device=trainer.device)
    if problem:
        raise UserError(problem)


def release() -> None:
    """Release the directory of this process's training."""
    while _held:
        _held.popitem()[1].close()


def claim(directory: Path) -> str | None:
    """Lock ``directory`` until this process ends, locks another one or calls :func:`release`.

    Returns:
        The owner of the lock, if another process has it.
    """
    place = directory.resolve()
    if place in _held:
        return None
    release()
    try:
        # Not truncated: it may belong to another process.
        file = open(place / LOCK, "a+", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        _warn(directory, error)
        return None
    try:
        # A lock by process, unlike flock(): a data loader that outlives a killed training does not keep it.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        with file:
            if isinstance(error, (BlockingIOError, PermissionError)):
                file.seek(0)
                return file.read().strip() or "an unknown process"
        _warn(directory, error)
        return None
    _held[place] = file
    with contextlib.suppress(OSError):  # a full disk
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
    return None


def _warn(directory: Path, error: OSError) -> None:
    logger.warning(f"{directory} cannot be locked ({error.strerror}): make sure that no other training writes there")


def claim_and_load(load: Callable[..., Any], cfg: Any, trainer: Trainer, **kwargs: Any) -> Any:
    """``load_checkpoint``, before which the training locks its directory, unless it saves no checkpoints.

    Raises:
        UserError: another training is writing there; raised in every process.
    """
    other = None
    local = "://" not in cfg.save_dir
    if local and not cfg.no_save and distributed_utils.is_master(trainer.cfg.distributed_training):
        other = claim(Path(cfg.save_dir))
    problem = f"{cfg.save_dir}: another training is writing there ({other}); wait for it to end, or use another "
    raise_everywhere(trainer, f"{problem}--save-dir" if other else None)
    return load(cfg, trainer, **kwargs)


def call_and_release(call_main: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """``call_main``, after which a process that continues releases the directory."""
    try:
        call_main(*args, **kwargs)
    finally:
        release()


def apply() -> None:
    """Wrap the function by which a training looks for checkpoints, and the start of every command."""
    wrap(checkpoint_utils, "load_checkpoint", claim_and_load, order=20)
    wrap(distributed_utils, "call_main", call_and_release, order=50)
