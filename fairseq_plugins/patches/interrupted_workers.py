"""Ctrl-C during ``fairseq-preprocess --workers N`` makes every worker print a stack trace.

The main process ends them anyway, so only it needs the interrupt.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from fairseq import binarizer
from fairseq.data import dictionary


def leave_interrupts_to_the_parent() -> None:
    """Ignore interrupts: the first call of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def quiet_pool(pool: Callable[..., Any], processes: int) -> Any:
    """``multiprocessing.Pool`` as fairseq calls it."""
    return pool(processes=processes, initializer=leave_interrupts_to_the_parent)


WRAPPED = (
    (dictionary, "Pool", quiet_pool),
    (binarizer, "Pool", quiet_pool),
)
