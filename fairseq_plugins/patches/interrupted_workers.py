"""Ctrl-C during ``fairseq-preprocess --workers N`` makes every worker print a stack trace.

The main process ends them anyway, so only it needs the interrupt.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from fairseq import binarizer
from fairseq.data import dictionary


def quiet_pool(pool: Callable[..., Any], processes: int) -> Any:
    """``multiprocessing.Pool`` as fairseq calls it, with workers that ignore interrupts."""
    return pool(processes=processes, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))


WRAPPED = ((dictionary, "Pool", quiet_pool), (binarizer, "Pool", quiet_pool))
