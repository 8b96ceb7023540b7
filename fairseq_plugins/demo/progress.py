"""Progress of several trainings: one line each, redrawn in place on a terminal."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fairseq_plugins.pipeline.fairseq_log import LogReader, TrainingLog
from fairseq_plugins.pipeline.run import FINISHED, LOG
from fairseq_plugins.pipeline.screen import Screen

SECONDS, SECONDS_ELSEWHERE = 1.0, 20.0
"""Seconds between two updates on a terminal, and in a file."""


@contextmanager
def shown(runs: Sequence[Path], max_update: int, screen: Screen) -> Iterator[None]:
    """Show the progress of ``runs`` until the block ends."""
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(runs, max_update, screen, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        screen.show([])


def _follow(runs: Sequence[Path], max_update: int, screen: Screen, ended: threading.Event) -> None:
    readers = {run: LogReader(run / LOG) for run in runs}
    last = -math.inf
    while not ended.wait(SECONDS):
        if not screen.live and time.monotonic() - last < SECONDS_ELSEWHERE:
            continue
        last = time.monotonic()
        lines = [
            f"  {run.parent.name:<12} {status(reader.poll(), max_update)}"
            for run, reader in readers.items()
            if run.is_dir() and not (run / FINISHED).exists()
        ]
        if screen.live:
            screen.show(lines)
        else:
            for line in lines:
                screen.say(line)


def status(log: TrainingLog, max_update: int) -> str:
    """One line for a training: updates, losses, speed, time left."""
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


def duration(seconds: float) -> str:
    """Format as ``M:SS``, or as ``HhMM`` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}" if hours else f"{minutes}:{rest:02d}"
