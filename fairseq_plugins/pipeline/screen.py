"""Lines at the bottom of a terminal that are redrawn in place."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Sequence
from typing import TextIO


class Screen:
    """Prints permanent messages, and below them a block of lines that is redrawn.

    Attributes:
        live: whether the output is a terminal; otherwise the block is never shown.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.live = self._stream.isatty()
        self._block: tuple[str, ...] = ()
        self._drawn = 0
        self._lock = threading.Lock()

    def say(self, message: str) -> None:
        """Print a line that stays."""
        with self._lock:
            self._erase()
            print(message, file=self._stream, flush=True)
            self._draw()

    def show(self, lines: Sequence[str]) -> None:
        """Replace the block by ``lines``."""
        with self._lock:
            self._block = tuple(lines)
            self._erase()
            self._draw()

    def _erase(self) -> None:
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0

    def _draw(self) -> None:
        if not self.live:
            return
        # A wrapped line or a scrolled block cannot be erased.
        size = shutil.get_terminal_size() if "COLUMNS" in os.environ else _size(self._stream)
        lines = [line[: size.columns - 1] for line in self._block]
        if len(lines) >= size.lines:
            hidden = len(lines) - (size.lines - 2)
            lines = [*lines[: size.lines - 2], f"... {hidden} more lines"]
        self._stream.write("".join(line + "\n" for line in lines))
        self._stream.flush()
        self._drawn = len(lines)


def _size(stream: TextIO) -> os.terminal_size:
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return os.terminal_size((80, 24))
    return size if size.columns > 1 and size.lines > 2 else os.terminal_size((80, 24))
