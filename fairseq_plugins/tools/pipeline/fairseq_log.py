"""The log of a training: its numbers (``--log-format json``), read as the file grows, and its error."""

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_plugins.records import parse_json
from fairseq_plugins.tools.unigram_entropy import DIVERGED, FAILED_TO_TRAIN

# Ignore the log prefix. Records are flat JSON. A killed run may leave a torn line that the next run appends to, so take
# the last object on the line.
_RECORD = re.compile(r"(\{[^{}]*\})\s*$")
_MAX_UPDATE = re.compile(r"'max_update': (\d+)")
_VALID_SUBSET = re.compile(r"'valid_subset': '([^',]+)")
_BEGINS = "| No existing checkpoint found "
_EPOCH = re.compile(r'(?:\{"epoch": |begin training epoch )(\d+)')
_NOT_FINITE = re.compile(r"FloatingPointError|gradients are Nan/Inf|NaN detected|Inf detected")
_FLOATING_POINT = re.compile(r"FloatingPointError: (.+)$")
# Hydra first reports that there was an error, then which one.
_EXCEPTION = re.compile(
    r"^(?:\[rank\d+\]: ?)?((?!Error executing job)(?:[A-Za-z_][\w.]*)?(?:Error|Exception|Interrupt)\b.*)$"
)
_ENDED = re.compile(r"^error: (?:diverged at update \d+: |(?=failed to train: ))(.+?)(?:; report: .*)?$")
_ERROR_LINE = re.compile(r"^error: (.+)$")
LINE = {"divergence_guard": (str, None), "ends": (str, None)}
"""Texts in a record; all other values are read as numbers."""


@dataclass
class TrainingLog:
    """Numbers of one training; losses are negative log-likelihoods in bits per target token, not label-smoothed.

    A resumed training repeats the updates since its last checkpoint. The latest record of an update counts. Without a
    checkpoint it begins anew, and so do the numbers.

    Attributes:
        updates, epochs: updates made and epochs begun.
        train_loss, valid_loss, valid_bleu, tokens_per_second: by update.
        updates_per_second: of the last interval.
        not_finite: whether a loss or a gradient was not.
        max_update: limit of updates, from the configuration at the top of the log; None without a limit.
        valid_subset: the first validation set, from the same place.
        ended_by_guard: why the guard ended it as diverged or failed to train, if nothing was trained since.
    """

    updates: int = 0
    train_loss: dict[int, float] = field(default_factory=dict)
    valid_loss: dict[int, float] = field(default_factory=dict)
    valid_bleu: dict[int, float] = field(default_factory=dict)
    tokens_per_second: dict[int, float] = field(default_factory=dict)
    updates_per_second: float | None = None
    not_finite: bool = False
    max_update: int | None = None
    valid_subset: str = "valid"
    epochs: int = 0
    ended_by_guard: str = ""

    def take(self, line: str) -> None:
        """Read one line of the log."""
        if match := _MAX_UPDATE.search(line):
            self.max_update = int(match[1]) or None
        if match := _VALID_SUBSET.search(line):
            self.valid_subset = match[1]
        if _BEGINS in line:
            # An earlier attempt without a checkpoint may have had other settings.
            vars(self).update(vars(TrainingLog(max_update=self.max_update, valid_subset=self.valid_subset)))
        if match := _EPOCH.search(line):
            self.epochs = int(match[1])
        match = _RECORD.search(line)
        with suppress(ValueError, OverflowError, TypeError, KeyError):  # a torn line
            if match and self._take_record(parse_json(match[1], LINE)):
                return
        self.not_finite |= bool(_NOT_FINITE.search(line))
        if match := _ENDED.search(line):
            self.ended_by_guard = match[1]

    def _take_record(self, record: dict[str, Any]) -> bool:
        """Read a record of training, validation or the divergence guard; return whether it was one."""
        if "divergence_guard" in record:
            # The guard logs before its update is made.
            self.updates = max(self.updates, int(record["update"]) - 1)
            self.ended_by_guard = record["ends"]
        elif f"{self.valid_subset}_num_updates" in record:
            updates = int(record[f"{self.valid_subset}_num_updates"])
            self._note(self.valid_loss, updates, record, f"{self.valid_subset}_")
            if f"{self.valid_subset}_bleu" in record:
                self.valid_bleu[updates] = float(record[f"{self.valid_subset}_bleu"])
        elif "train_num_updates" in record:  # the summary of an epoch
            self.updates = max(self.updates, int(record["train_num_updates"]))
        elif "num_updates" in record:
            self.ended_by_guard = ""
            updates = int(record["num_updates"])
            self._note(self.train_loss, updates, record, "")
            if float(record.get("wps", 0)) > 0:
                self.tokens_per_second[updates] = float(record["wps"])
            if float(record.get("ups", 0)) > 0:
                self.updates_per_second = float(record["ups"])
        else:
            return False
        return True

    def _note(self, losses: dict[int, float], updates: int, record: dict[str, Any], prefix: str) -> None:
        self.updates = max(self.updates, updates)
        # Language models log no nll_loss: their loss is the negative log-likelihood.
        loss = record.get(f"{prefix}nll_loss", record.get(f"{prefix}loss"))
        if loss is not None:
            losses[updates] = float(loss)
            self.not_finite |= not math.isfinite(losses[updates])

    @property
    def failure(self) -> str:
        """``diverged`` or ``failed to train``; empty for any other training."""
        if self.ended_by_guard.startswith(FAILED_TO_TRAIN):
            return FAILED_TO_TRAIN
        return DIVERGED if self.not_finite or self.ended_by_guard else ""

    @property
    def divergence(self) -> str:
        """Why it diverged or failed to train, if it did."""
        return self.ended_by_guard.removeprefix(f"{FAILED_TO_TRAIN}: ") or "loss not finite"

    @property
    def final_valid_loss(self) -> float | None:
        """Valid loss at the latest update; None before the first validation."""
        return self.valid_loss[max(self.valid_loss)] if self.valid_loss else None

    @property
    def median_speed(self) -> float | None:
        """Target tokens per second, median over the log's intervals; None before the first."""
        return statistics.median(self.tokens_per_second.values()) if self.tokens_per_second else None


class LogReader:
    """Follows a growing log file, which may not exist yet, from byte ``since``. An incomplete line is read later."""

    def __init__(self, path: Path, since: int = 0) -> None:
        self.path = path
        self.log = TrainingLog()
        self._offset = since

    def poll(self) -> TrainingLog:
        """Read the lines written since the last call."""
        for _ in self.lines():
            pass
        return self.log

    def lines(self) -> Iterator[str]:
        """Read the lines written since the last call; each line comes out when :attr:`log` has read it."""
        try:
            with open(self.path, "rb") as stream:
                stream.seek(self._offset)
                new = stream.read()
        except (FileNotFoundError, IsADirectoryError):
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.decode("utf-8", errors="replace").splitlines():
            self.log.take(line)
            yield line


def read_log(path: Path) -> TrainingLog:
    """The numbers of a finished training's log file."""
    return LogReader(path).poll()


def floating_point_error(lines: Sequence[str]) -> str:
    """The first sentence of the last ``FloatingPointError``; empty where there is none."""
    errors = [match[1] for line in lines if (match := _FLOATING_POINT.search(line))]
    return re.split(r"\. ", errors[-1])[0].rstrip(".") if errors else ""


def error_message(lines: Sequence[str]) -> str:
    """The message that ended a command: its ``error:`` line, else the last line of a traceback; empty without either.

    Of several processes the first to fail is the cause; the others only report the lost connection.
    """
    for pattern in (_ERROR_LINE, _EXCEPTION):
        for line in lines:
            if match := pattern.match(line.strip()):
                return match[1]
    return ""
