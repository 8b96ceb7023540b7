"""A process that ends when its parent does, however that ends: an orphan would go on, and keep its directory locked."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with(parent: int, by: signal.Signals = signal.SIGTERM) -> None:
    """Let this process get a signal when its parent ends, even by SIGKILL; only Linux can do this.

    Args:
        parent: the process that started this one, which may have ended already.
        by: the signal.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), by)
