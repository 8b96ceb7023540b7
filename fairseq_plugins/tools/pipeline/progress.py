"""Progress of a training: updates, losses, speed and time left, in a line now and then."""

import math
import time
from datetime import timedelta
from pathlib import Path

from fairseq_plugins.tools.pipeline.fairseq_log import LogReader, TrainingLog
from fairseq_plugins.tools.pipeline.workspace import say

SECONDS = 20.0
"""Minimum time between two lines of progress."""


class Progress:
    """Prints the status of a training every few seconds, and each validation and warning.

    Earlier attempts wrote the first ``since`` bytes of the log.
    """

    def __init__(self, log: Path, since: int) -> None:
        self._reader = LogReader(log, since)
        self._shown, self._shown_at = "", -math.inf

    def poll(self) -> None:
        """Print the training's log since the last call."""
        numbers = self._reader.log
        for line in self._reader.lines():
            if "| WARNING |" in line:
                say(line)
            elif f"| {numbers.valid_subset} |" in line and numbers.valid_loss:
                updates = max(numbers.valid_loss)
                bleu = f", BLEU {numbers.valid_bleu[updates]:.2f}" if updates in numbers.valid_bleu else ""
                say(f"validation after {updates} updates: {numbers.valid_loss[updates]:.2f} bits/token{bleu}")
        if time.monotonic() - self._shown_at >= SECONDS and (line := status(numbers)) != self._shown:
            self._shown, self._shown_at = line, time.monotonic()
            say(line)


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
