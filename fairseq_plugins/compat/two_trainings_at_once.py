"""Two trainings at once in one ``--save-dir`` overwrite each other's checkpoints, and both end with exit code 0.

The process that writes the checkpoints locks ``.lock`` in the directory while it trains. The system drops the lock when
that process ends, however it ends, and workers that it has forked do not hold it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils

from fairseq_plugins.compat.wrapping import wrap
from fairseq_plugins.errors import UserError

logger = logging.getLogger(__name__)

LOCK = ".lock"
_held: dict[Path, IO[str]] = {}
"""The locked file of the training of this process, if there is one."""


def release() -> None:
    """Give up the directory of this process's training."""
    while _held:
        _held.popitem()[1].close()


def claim(directory: Path) -> None:
    """Keep other trainings out of ``directory`` until this process ends, claims another or calls :func:`release`.

    Raises:
        UserError: another process has claimed it.
    """
    place = directory.resolve()
    if place in _held:
        return
    release()
    # Not truncated: it may be another's.
    file = open(place / LOCK, "a+", encoding="utf-8")  # noqa: SIM115
    try:
        # By process, unlike flock(): a loader of data that outlives a killed training does not keep the lock.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        file.seek(0)
        who = file.read().strip()
        file.close()
        raise UserError(
            f"{directory}: another training is at work there{who and f' ({who})'}; wait for it to end, or give another "
            "--save-dir"
        ) from None
    except OSError as error:
        file.close()
        logger.warning(f"{directory} cannot be locked ({error.strerror}): see that no other training writes there")
        return
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    file.flush()
    _held[place] = file


def verify_and_claim(verify: Callable[..., None], save_dir: str, *args: Any, **kwargs: Any) -> None:
    """``verify_checkpoint_directory``, which the one process calls that writes the checkpoints."""
    verify(save_dir, *args, **kwargs)
    if "://" not in str(save_dir):
        claim(Path(save_dir))


def call_and_release(call_main: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """``call_main``, after which a process that goes on may leave the directory to others."""
    try:
        call_main(*args, **kwargs)
    finally:
        release()


def apply() -> None:
    """Wrap the first and the last thing that a training does."""
    wrap(checkpoint_utils, "verify_checkpoint_directory", verify_and_claim)
    wrap(distributed_utils, "call_main", call_and_release)
