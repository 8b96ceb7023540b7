"""A clock that jumps: ``time.time`` of a process is ahead by the number of seconds in a file."""

from __future__ import annotations

import contextlib
import time

_time, _time_ns = time.time, time.time_ns


def install(path: str) -> None:
    """Let the clock of this process follow the file at ``path``."""

    def ahead() -> float:
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
            return float(file.read())
        return 0.0

    time.time = lambda: _time() + ahead()
    time.time_ns = lambda: _time_ns() + int(ahead() * 1e9)
