"""What fairseq's commands print, parsed here and nowhere else.

:class:`TrainingLog` holds the numbers of a training (``--log-format json``) and is read as the file grows.
The functions at the end read an error, the translations of ``fairseq-generate``, and the loss of ``fairseq-eval-lm``.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_plugins.outcomes import DIVERGED, FAILED_TO_TRAIN

# Ignore the log prefix. Records are flat JSON. A killed run may leave a torn line that the next run appends to, so take
# the last object on the line.
_RECORD = re.compile(r"(\{[^{}]*\})\s*$")
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
_MAX_UPDATE = re.compile(r"'max_update': (\d+)")
_LOSS_SCALE_EXHAUSTED = "Minimum loss scale reached"
_EPOCH = re.compile(r'(?:\{"epoch": |begin training epoch )(\d+)')
_NOT_FINITE = re.compile(r"FloatingPointError|gradients are Nan/Inf|NaN detected|Inf detected")
_FLOATING_POINT = re.compile(r"FloatingPointError: (.+)$")
# Hydra first reports that there was an error, then which one.
_EXCEPTION = re.compile(
    r"^(?:\[rank\d+\]: ?)?((?!Error executing job)(?:[A-Za-z_][\w.]*)?(?:Error|Exception|Interrupt)\b.*)$"
)
_ENDED = re.compile(r"^error: (?:diverged at update \d+: |(?=failed to train: ))(.+?)(?:; report: .*)?$")
_ERROR_LINE = re.compile(r"^error: (.+)$")
_SENTENCE = re.compile(r"^(?:D-(\d+)\t[^\t]*|T-(\d+))\t(.*)$")
_LOSS = re.compile(r"Loss \(base 2\): ([\d.]+|nan|inf), Perplexity: ([\d.]+|nan|inf)")
_TOKENS = re.compile(r"Evaluated ([\d,]+) tokens")


@dataclass
class TrainingLog:
    """Numbers of one training; losses are negative log-likelihoods in bits per target token, not label-smoothed.

    A resumed training repeats the updates since its last checkpoint. The latest record of an update counts.
    """

    parameters: int | None = None
    train_loss: dict[int, float] = field(default_factory=dict)
    valid_loss: dict[int, float] = field(default_factory=dict)
    tokens_per_second: dict[int, float] = field(default_factory=dict)
    updates_per_second: float | None = None
    not_finite: bool = False
    valid_bleu: dict[int, float] = field(default_factory=dict)
    max_update: int | None = None
    """Limit of updates, from the configuration at the top of the log; None without a limit."""
    epochs: int = 0
    """Epochs begun."""
    loss_scale_exhausted: bool = False
    guarded: dict[int, str] = field(default_factory=dict)
    """Messages of the divergence guard by update; the latest of each."""
    ended_by_guard: str = ""
    """Reason of a training that ended as diverged or failed to train, if nothing was trained since."""
    _updates_at_end: int = 0

    def take(self, line: str) -> None:
        """Read one line of the log."""
        if match := _PARAMETERS.search(line):
            self.parameters = int(match.group(1).replace(",", ""))
        if match := _MAX_UPDATE.search(line):
            self.max_update = int(match.group(1)) or None
        if match := _EPOCH.search(line):
            self.epochs = int(match.group(1))
        match = _RECORD.search(line)
        with suppress(ValueError):  # a torn line
            if match and self._take_record(json.loads(match[1])):
                return
        self.loss_scale_exhausted = self.loss_scale_exhausted or _LOSS_SCALE_EXHAUSTED in line
        self.not_finite = self.not_finite or self.loss_scale_exhausted or bool(_NOT_FINITE.search(line))
        if match := _ENDED.search(line):
            self.ended_by_guard = match[1]

    def _take_record(self, record: dict[str, Any]) -> bool:
        """Read a record of training, validation or the divergence guard; return whether it was one."""
        if "divergence_guard" in record:
            self.guarded[int(record["update"])] = record["divergence_guard"]
            self.ended_by_guard = record["ends"]
            return True
        if "valid_num_updates" in record:
            updates = int(record["valid_num_updates"])
            self._note(self.valid_loss, updates, record, "valid_")
            if "valid_bleu" in record:
                self.valid_bleu[updates] = float(record["valid_bleu"])
            return True
        if "train_num_updates" in record:  # the summary of an epoch
            self._updates_at_end = int(record["train_num_updates"])
            return True
        if "num_updates" not in record:
            return False
        self.ended_by_guard = ""
        updates = int(record["num_updates"])
        self._note(self.train_loss, updates, record, "")
        if float(record.get("wps", 0)) > 0:
            self.tokens_per_second[updates] = float(record["wps"])
        if float(record.get("ups", 0)) > 0:
            self.updates_per_second = float(record["ups"])
        return True

    def _note(self, losses: dict[int, float], updates: int, record: dict[str, Any], prefix: str) -> None:
        # Language models log no nll_loss: their loss is the negative log-likelihood.
        loss = record.get(f"{prefix}nll_loss", record.get(f"{prefix}loss"))
        if loss is not None:
            losses[updates] = float(loss)
            self.not_finite = self.not_finite or not math.isfinite(losses[updates])

    @property
    def failure(self) -> str:
        """``diverged`` or ``failed to train``; empty for any other training."""
        if self.ended_by_guard.startswith(FAILED_TO_TRAIN):
            return FAILED_TO_TRAIN
        return DIVERGED if self.not_finite or self.ended_by_guard else ""

    @property
    def divergence(self) -> str:
        """Why it diverged or failed to train, if it did."""
        if self.ended_by_guard:
            return self.ended_by_guard.removeprefix(f"{FAILED_TO_TRAIN}: ")
        return "minimum loss scale reached" if self.loss_scale_exhausted else "loss not finite"

    @property
    def updates(self) -> int:
        """Updates made so far, according to the log."""
        # The guard logs before its update is made.
        made = (*self.train_loss, *self.valid_loss, *(number - 1 for number in self.guarded))
        return max([self._updates_at_end, *made])

    @property
    def final_valid_loss(self) -> float | None:
        """Valid loss at the latest update; None before the first validation."""
        return self.valid_loss[max(self.valid_loss)] if self.valid_loss else None

    @property
    def median_speed(self) -> float | None:
        """Target tokens per second, median over the log's intervals; None before the first."""
        return statistics.median(self.tokens_per_second.values()) if self.tokens_per_second else None


class LogReader:
    """Follows a growing log file. An incomplete line is read later; a file that became shorter is a new log.

    Args:
        path: the log, which may not exist yet.
        since: bytes at its beginning that are not read.
    """

    def __init__(self, path: Path, since: int = 0) -> None:
        self.path = path
        self.log = TrainingLog()
        self._offset = since

    def poll(self) -> TrainingLog:
        """Read what was written since the last call."""
        for _ in self.lines():
            pass
        return self.log

    def lines(self) -> Iterator[str]:
        """Read what was written since the last call; each line comes out when :attr:`log` has read it."""
        try:
            with open(self.path, "rb") as stream:
                if stream.seek(0, os.SEEK_END) < self._offset:
                    self.log, self._offset = TrainingLog(), 0
                stream.seek(self._offset)
                new = stream.read()
        except FileNotFoundError:
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


def sentence(line: str) -> tuple[str, int, str] | None:
    """A line of ``fairseq-generate``: ("D", index, text) of a detokenised hypothesis, ("T", ...) of a reference."""
    if not (match := _SENTENCE.match(line.rstrip("\n"))):
        return None
    return ("D", int(match[1]), match[3]) if match[1] else ("T", int(match[2]), match[3])


def language_model_loss(text: str) -> tuple[float, int] | None:
    """Loss in bits per token and number of tokens, as ``fairseq-eval-lm`` printed them."""
    loss, tokens = _LOSS.search(text), _TOKENS.search(text)
    return (float(loss[1]), int(tokens[1].replace(",", ""))) if loss and tokens else None
