"""Two trainings at once in one ``--save-dir`` overwrite each other's checkpoints, and both end with exit code 0.

The first process of a training locks ``.lock`` in the directory before it looks for a checkpoint there. The system
releases the lock when that process ends, however it ends, and workers that it has forked do not hold it.
"""

import fcntl
import logging
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from fairseq_plugins.errors import raise_everywhere
from fairseq_plugins.files import no_link

logger = logging.getLogger(__name__)

LOCK = ".lock"
_held: dict[Path, IO[str]] = {}
"""The locked file of the training of this process, if there is one."""


def release() -> None:
    """Release the directory of this process's training."""
    while _held:
        _held.popitem()[1].close()


def claim(directory: Path) -> str | None:
    """Lock ``directory`` until this process ends, locks another one or calls :func:`release`.

    Returns:
        Why a training cannot write there; None if it can, or if the file system has no locks.
    """
    place = directory.resolve()
    if place in _held:
        return None
    release()
    try:
        file = open(place / LOCK, "a", encoding="utf-8", opener=no_link)  # noqa: SIM115
    except OSError as error:
        return f"{directory / LOCK}: {error.strerror}"
    try:
        # A lock by process, unlike flock(): a data loader that outlives a killed training does not keep it.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _held[place] = file
    except (BlockingIOError, PermissionError):
        file.close()
        return f"{directory}: another training is writing there; wait for it to end, or use another --save-dir"
    except OSError as error:
        file.close()
        logger.warning(f"{directory} cannot be locked ({error.strerror}): make sure that no other training uses it")
    return None


def claim_and_load(load: Callable[..., Any], cfg: Any, trainer: Trainer, **kwargs: Any) -> Any:
    """``load_checkpoint`` of a training that first locks its directory, if it saves; a UserError in every process."""
    saves = "://" not in cfg.save_dir and not cfg.no_save
    first = distributed_utils.is_master(trainer.cfg.distributed_training)
    raise_everywhere(trainer, claim(Path(cfg.save_dir)) if saves and first else None)
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
