"""Two trainings at once in one ``--save-dir`` overwrite each other's checkpoints, and both end with exit code 0.

The first process of a training locks ``.lock`` in the directory before it looks for a checkpoint there. The system
releases the lock when that process ends, however it ends, and workers that it has forked do not hold it.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from fairseq_plugins.errors import UserError

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


def claim(directory: Path) -> bool:
    """Lock ``directory`` until this process ends, locks another one or calls :func:`release`.

    Returns:
        Whether no other process has it; on a file system without locks this is not known.
    """
    place = directory.resolve()
    if place in _held:
        return True
    release()
    file = open(place / LOCK, "a", encoding="utf-8")  # noqa: SIM115
    try:
        # A lock by process, unlike flock(): a data loader that outlives a killed training does not keep it.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _held[place] = file
    except (BlockingIOError, PermissionError):
        file.close()
        return False
    except OSError as error:
        file.close()
        logger.warning(f"{directory} cannot be locked ({error.strerror}): make sure that no other training uses it")
    return True


def claim_and_load(load: Callable[..., Any], cfg: Any, trainer: Trainer, **kwargs: Any) -> Any:
    """``load_checkpoint``, before which the training locks its directory, unless it saves no checkpoints.

    Raises:
        UserError: another training is writing there; raised in every process.
    """
    saves = "://" not in cfg.save_dir and not cfg.no_save
    free = not (saves and distributed_utils.is_master(trainer.cfg.distributed_training)) or claim(Path(cfg.save_dir))
    problem = f"{cfg.save_dir}: another training is writing there; wait for it to end, or use another --save-dir"
    raise_everywhere(trainer, None if free else problem)
    return load(cfg, trainer, **kwargs)


def call_and_release(call_main: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """``call_main``, after which a process that continues releases the directory."""
    try:
        call_main(*args, **kwargs)
    finally:
        release()


WRAPPED = (
    (checkpoint_utils, "load_checkpoint", claim_and_load, 20),
    (distributed_utils, "call_main", call_and_release, 50),
)
"""The function by which a training looks for checkpoints, and the start of every command."""
