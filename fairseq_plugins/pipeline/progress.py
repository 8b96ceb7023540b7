"""Progress of trainings: a line each with updates, losses, speed and time left, redrawn in place on a terminal."""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from fairseq_plugins.pipeline.fairseq_log import LogReader, TrainingLog
from fairseq_plugins.pipeline.results import FINISHED, LOG

SECONDS, SECONDS_ELSEWHERE = 1.0, 20.0
"""Seconds between two updates on a terminal, and in a file."""
SAMPLES = 2
"""Sample translations that are shown of each validation; fairseq logs one of each batch."""
_SAMPLE = re.compile(r"example (hypothesis|reference): (.*)$")


class Screen:
    """Prints permanent messages, and below them a block of lines that is redrawn.

    If the reader of the output has gone (``| head``), the job of this process continues.

    Attributes:
        live: whether the output is a terminal; otherwise the block is never shown.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.live = self._stream.isatty()
        self._block: tuple[str, ...] = ()
        self._drawn = 0
        self._printed_at = -math.inf
        self._lock = threading.Lock()

    def say(self, message: str) -> None:
        """Print a line that stays."""
        with self._writing():
            self._erase()
            print(message, file=self._stream, flush=True)
            self._draw()

    def show(self, lines: Sequence[str]) -> None:
        """Replace the block by ``lines``."""
        with self._writing():
            self._block = tuple(lines)
            self._erase()
            self._draw()

    def renew(self, lines: Sequence[str]) -> None:
        """Replace the block by ``lines``; where the output is no terminal, print those that are new, now and then."""
        if self.live:
            self.show(lines)
        elif time.monotonic() - self._printed_at >= SECONDS_ELSEWHERE:
            self._printed_at = time.monotonic()
            before, self._block = self._block, tuple(lines)
            for line in lines:
                if line not in before:
                    self.say(line)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def _erase(self) -> None:
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0

    def _draw(self) -> None:
        if not self.live:
            return
        # A wrapped line or a scrolled block cannot be erased.
        columns, rows = shutil.get_terminal_size()
        lines = [line[: columns - 1] for line in self._block]
        if len(lines) >= rows:
            lines = [*lines[: rows - 2], f"... {len(lines) - (rows - 2)} more lines"]
        self._stream.write("".join(line + "\n" for line in lines))
        self._stream.flush()
        self._drawn = len(lines)


class Progress:
    """What the user of one training sees while it runs: its status, validations with sample translations, warnings.

    Args:
        log: the log of the training.
        since: bytes of ``log`` that earlier attempts wrote.
        screen: where to show it.
    """

    def __init__(self, log: Path, since: int, screen: Screen) -> None:
        self._reader, self._screen = LogReader(log, since), screen
        self._samples: list[str] = []

    def poll(self) -> None:
        """Show what the training has logged since the last call."""
        numbers = self._reader.log
        for line in self._reader.lines():
            if "| WARNING |" in line:
                self._screen.say(line)
            elif sample := _SAMPLE.search(line):
                self._samples.append(f"  {sample[1]:<10}  {sample[2]}")
            elif "| valid |" in line and numbers.valid_loss:
                updates = max(numbers.valid_loss)
                bleu = f", BLEU {numbers.valid_bleu[updates]:.2f}" if updates in numbers.valid_bleu else ""
                loss = f"{numbers.valid_loss[updates]:.2f} bits/token"
                for shown_line in (f"validation after {updates} updates: {loss}{bleu}", *self._samples[: 2 * SAMPLES]):
                    self._screen.say(shown_line)
                self._samples.clear()
        self._screen.renew([status(numbers)])


@contextmanager
def shown(runs: Mapping[str, Path], screen: Screen) -> Iterator[None]:
    """Show the progress of ``runs``, which are directories by name, until the block ends."""
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(runs, screen, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        screen.show([])


def _follow(runs: Mapping[str, Path], screen: Screen, ended: threading.Event) -> None:
    readers = {name: LogReader(run / LOG) for name, run in runs.items()}
    width = max(map(len, runs), default=0)
    while not ended.wait(SECONDS):
        screen.renew(
            [
                f"  {name:<{width}} {status(readers[name].poll())}"
                for name, run in runs.items()
                if run.is_dir() and not (run / FINISHED).exists()
            ]
        )


def status(log: TrainingLog) -> str:
    """One line for a training: updates, losses, speed, and time left where the updates are limited."""
    if not log.updates:
        return "starting"
    parts = [f"{log.updates:>5}{f'/{log.max_update}' if log.max_update else ''} updates"]
    if log.train_loss:
        parts.append(f"train loss {log.train_loss[max(log.train_loss)]:.2f}")
    if log.final_valid_loss is not None:
        parts.append(f"valid {log.final_valid_loss:.2f} bits/token")
    if log.median_speed:
        parts.append(f"{log.median_speed:,.0f} tokens/s")
    if log.updates_per_second and log.max_update:
        parts.append(f"ETA {duration((log.max_update - log.updates) / log.updates_per_second)}")
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """Format as ``M:SS``, or as ``HhMM`` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}" if hours else f"{minutes}:{rest:02d}"
