"""Progress of trainings: updates, losses, speed and time left in one line, which is renewed on a terminal."""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TextIO

from fairseq_plugins.errors import visible
from fairseq_plugins.tools.pipeline.fairseq_log import LogReader, TrainingLog
from fairseq_plugins.tools.pipeline.results import FINISHED

SECONDS_ELSEWHERE = 20.0
"""Seconds between two lines of progress where the output is no terminal."""
SAMPLES = 2
"""Sample translations that are shown of each validation; fairseq logs one of each batch."""
_SAMPLE = re.compile(r"example (hypothesis|reference): (.*)$")


class Screen:
    """Prints lines that stay, and below them one that is renewed.

    If the reader of the output has gone (``| head``), the job of this process continues.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._terminal = self._stream.isatty()
        self._shown = ""
        self._shown_at = -math.inf

    def say(self, message: str) -> None:
        """Print a line that stays."""
        erased = "\r\x1b[K" if self._terminal and self._shown else ""
        self._write(f"{erased}{visible(message)}\n{self._shown if self._terminal else ''}")

    def show(self, line: str) -> None:
        """Renew the last line; where the output is no terminal, print it now and then, if it is new."""
        if self._terminal:
            # A wrapped line cannot be erased.
            before, self._shown = self._shown, visible(line)[: shutil.get_terminal_size().columns - 1]
            if self._shown != before:
                self._write(f"\r\x1b[K{self._shown}")
        elif line and time.monotonic() - self._shown_at >= SECONDS_ELSEWHERE:
            self._shown_at = time.monotonic()
            if line != self._shown:
                self._shown = line
                self.say(line)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


class Progress:
    """What the user of one training sees while it runs: its status, validations with sample translations, warnings.

    Earlier attempts wrote the first ``since`` bytes of the log.
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
            elif f"| {numbers.valid_subset} |" in line and numbers.valid_loss:
                updates = max(numbers.valid_loss)
                bleu = f", BLEU {numbers.valid_bleu[updates]:.2f}" if updates in numbers.valid_bleu else ""
                loss = f"{numbers.valid_loss[updates]:.2f} bits/token"
                for shown_line in (f"validation after {updates} updates: {loss}{bleu}", *self._samples[: 2 * SAMPLES]):
                    self._screen.say(shown_line)
                self._samples.clear()
        self._screen.show(status(numbers))


def glance(logs: Mapping[Path, LogReader]) -> str:
    """One line for the trainings that have begun and not ended, by their directories; empty if there is none."""
    running = {run: log for run, log in logs.items() if run.is_dir() and not (run / FINISHED).exists()}
    seeds = Counter(run.parent for run in running)
    names = {run: run.parent.name + (f"/{run.name}" if seeds[run.parent] > 1 else "") for run in running}
    statuses = {names[run]: status(log.poll()) for run, log in running.items()}
    # Of several there is room for the updates only.
    short = {name: text.partition(",")[0] for name, text in statuses.items()}
    return ", ".join(f"{name}: {text}" for name, text in (short if len(short) > 1 else statuses).items())


def status(log: TrainingLog) -> str:
    """One line for a training: updates, losses, speed, and time left where the updates are limited."""
    if not log.updates:
        return "starting"
    parts = [f"{log.updates}{f'/{log.max_update}' if log.max_update else ''} updates"]
    if log.train_loss:
        parts.append(f"train loss {log.train_loss[max(log.train_loss)]:.2f}")
    if log.final_valid_loss is not None:
        parts.append(f"valid {log.final_valid_loss:.2f} bits/token")
    if log.median_speed:
        parts.append(f"{log.median_speed:,.0f} tokens/s")
    if log.updates_per_second and log.max_update:
        parts.append(f"ETA {timedelta(seconds=round((log.max_update - log.updates) / log.updates_per_second))}")
    return ", ".join(parts)
