"""What the terminal shows while the job runs: messages, and one line for each method in work."""

from __future__ import annotations

import math
import sys
import threading
import time
from typing import TextIO

from fairseq_plugins.pipeline.training_log import TrainingLog

QUIET_INTERVAL_SECONDS = 15.0
"""Time between progress lines where the output is not a terminal."""


class Board:
    """Messages, and below them a status line for each name, redrawn in place on a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._live = self._stream.isatty()
        self._status: dict[str, str] = {}
        self._drawn = 0
        self._last_shown = -math.inf
        self._lock = threading.RLock()

    def say(self, message: str) -> None:
        """Print a line that stays."""
        with self._lock:
            self._erase()
            print(message, file=self._stream, flush=True)
            self._draw()

    def set(self, name: str, status: str | None) -> None:
        """Set the status of ``name``; None removes it."""
        with self._lock:
            if status is None:
                self._status.pop(name, None)
            else:
                self._status[name] = status

    def status(self, name: str) -> str | None:
        """The status of ``name``; None where it has none."""
        return self._status.get(name)

    def show(self) -> None:
        """Redraw the status lines, or print them now and then where they cannot be redrawn."""
        with self._lock:
            if self._live:
                self._erase()
                self._draw()
            elif time.monotonic() - self._last_shown >= QUIET_INTERVAL_SECONDS and self._status:
                self._last_shown = time.monotonic()
                for line in self._lines():
                    print(line, file=self._stream, flush=True)

    def _lines(self) -> list[str]:
        return [f"  {name:<12} {status}" for name, status in self._status.items()]

    def _erase(self) -> None:
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0

    def _draw(self) -> None:
        if self._live:
            lines = self._lines()
            self._stream.write("".join(line[:119] + "\n" for line in lines))
            self._stream.flush()
            self._drawn = len(lines)


def duration(seconds: float) -> str:
    """Minutes and seconds, or hours and minutes, as a clock shows them."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}" if hours else f"{minutes}:{rest:02d}"


def training_status(log: TrainingLog, max_update: int) -> str:
    """One training at a glance: updates, losses, speed, time left."""
    if not log.updates:
        return "starting"
    parts = [f"{log.updates:>5}/{max_update} updates"]
    if log.train_loss:
        parts.append(f"train loss {log.train_loss[max(log.train_loss)]:.2f}")
    if log.final_valid_loss is not None:
        parts.append(f"valid {log.final_valid_loss:.2f} bits/token")
    if log.median_speed:
        parts.append(f"{log.median_speed:,.0f} tokens/s")
    if log.updates_per_second:
        parts.append(f"ETA {duration((max_update - log.updates) / log.updates_per_second)}")
    return "  ".join(parts)
