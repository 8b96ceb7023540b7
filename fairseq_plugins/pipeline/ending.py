"""How a training ended: at its end, diverged, or by a mistake; ``finished`` keeps the first two.

A loss that is not finite, or what made the divergence guard end a training, is a result: starting again would only find
it again.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import write_whole
from fairseq_plugins.pipeline.training_log import DIVERGED, TrainingLog

# Hydra says first that there was an error, then which.
EXCEPTION = re.compile(
    r"^(?:\[rank\d+\]: ?)?(?P<text>(?!Error executing job)(?:[A-Za-z_][\w.]*)?(?:Error|Exception|Interrupt)\b.*)$"
)
FLOATING_POINT = re.compile(r"FloatingPointError: (?P<text>.+)$")
PREFIX = re.compile(r"^error: (?P<text>.+)$")
EPOCH = re.compile(r'(?:\{"epoch": |begin training epoch )(\d+)')
UPDATES_AT_END = re.compile(r'"train_num_updates": "(\d+)"')


@dataclass(frozen=True)
class Ending:
    """The end of a training.

    Args:
        num_updates: that were made.
        epochs: that were begun.
        reason: why it failed; empty for one that reached its end.
        outcome: what to call the failure.
    """

    num_updates: int
    epochs: int
    reason: str = ""
    outcome: str = DIVERGED

    @property
    def exit_code(self) -> int:
        """Of the command: 0 for a training that reached its end, 1 for one that diverged."""
        return 1 if self.reason else 0

    def sentence(self) -> str:
        """What to tell the user."""
        done = f"{self.num_updates} updates, {self.epochs} epoch{'s' if self.epochs != 1 else ''}"
        return f"{self.outcome} after {done} ({self.reason})" if self.reason else f"finished ({done})"


def finished(run: Path) -> Ending | None:
    """What ``RUN/finished`` says; None where the training is not at its end."""
    try:
        said = json.loads((run / "finished").read_text(encoding="utf-8"))
        return Ending(
            int(said["num_updates"]),
            int(said["epochs"]),
            str(said.get("reason", "")),
            str(said.get("outcome", DIVERGED)),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{run / 'finished'}: damaged; delete it and call again") from error


def say_how_it_ended(run: Path, code: int, log: Path, since: int) -> Ending:
    """Write ``RUN/finished`` for a training that reached its end or diverged.

    Args:
        run: the training's directory.
        code: exit code of the training.
        log: what it said.
        since: bytes of ``log`` that earlier attempts wrote.

    Raises:
        UserError: it ended in any other way; the message is its own last word.
    """
    lines = _lines(log, since)
    reason, outcome = "", DIVERGED
    if code:
        reason, outcome = _divergence(lines)
        if not reason:
            raise UserError(_last_word(lines) or f"the training ended with code {code}; see {log}")
    updates, epochs = _reached(_lines(log, 0))
    ending = Ending(updates, epochs, reason, outcome)
    record = {"num_updates": updates, "epochs": epochs, **({"outcome": outcome, "reason": reason} if reason else {})}
    write_whole(run / "finished", json.dumps(record) + "\n")
    return ending


def _lines(log: Path, since: int) -> list[str]:
    with open(log, "rb") as stream:
        stream.seek(since)
        return stream.read().decode("utf-8", errors="replace").splitlines()


def _divergence(lines: list[str]) -> tuple[str, str]:
    """Why a training diverged, and what to call that; the reason is empty for one that did not.

    The divergence guard's words, else fairseq's up to the first full stop.
    """
    log = TrainingLog()
    for line in lines:
        log.take(line)
    if log.ended_by_guard:
        return log.divergence, log.failure
    found = [match["text"] for line in lines if (match := FLOATING_POINT.search(line))]
    return (re.split(r"\. ", found[-1])[0].rstrip(".") if found else ""), DIVERGED


def _last_word(lines: list[str]) -> str:
    """The message of a mistake, or the last line of a trace."""
    for pattern in (PREFIX, EXCEPTION):
        found = [match["text"] for line in lines if (match := pattern.match(line.strip()))]
        # Of several processes the first to fail is the cause; the others say that it has left.
        if found:
            return found[0]
    return ""


def _reached(lines: list[str]) -> tuple[int, int]:
    """Updates and epochs by the log: fairseq writes both at the end of each epoch, and when it stops."""
    log = TrainingLog()
    updates, epochs = 0, 0
    for line in lines:
        log.take(line)
        if match := EPOCH.search(line):
            epochs = int(match.group(1))
        if match := UPDATES_AT_END.search(line):
            updates = int(match.group(1))
    return max(updates, log.updates), epochs


def tell(lines: Sequence[str], stream: TextIO | None = None) -> None:
    """Print ``lines``. A training goes on where nobody reads them any more (``| head``)."""
    stream = stream or sys.stdout
    try:
        print("\n".join(lines), file=stream, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
