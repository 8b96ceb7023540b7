"""How a training ended: completed, diverged, or failed with an error. ``RUN/finished`` records the first two.

A divergence is a result: the same training would diverge again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import write_whole
from fairseq_plugins.outcomes import DIVERGED
from fairseq_plugins.pipeline.fairseq_log import TrainingLog, error_message, floating_point_error


@dataclass(frozen=True)
class Ending:
    """The end of a training.

    Args:
        num_updates: updates made.
        epochs: epochs begun.
        reason: why it failed; empty for a completed training.
        outcome: the name of the failure.
    """

    num_updates: int
    epochs: int
    reason: str = ""
    outcome: str = DIVERGED

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 0 for a completed training, 1 for one that diverged."""
        return 1 if self.reason else 0

    def sentence(self) -> str:
        """One line for the user."""
        done = f"{self.num_updates} updates, {self.epochs} epoch{'s' if self.epochs != 1 else ''}"
        return f"{self.outcome} after {done} ({self.reason})" if self.reason else f"finished ({done})"


def finished(run: Path) -> Ending | None:
    """The content of ``RUN/finished``; None if the training has not ended."""
    try:
        record = json.loads((run / "finished").read_text(encoding="utf-8"))
        return Ending(
            int(record["num_updates"]),
            int(record["epochs"]),
            str(record.get("reason", "")),
            str(record.get("outcome", DIVERGED)),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{run / 'finished'}: damaged; delete it and run the command again") from error


def say_how_it_ended(run: Path, code: int, log: Path, since: int) -> Ending:
    """Write ``RUN/finished`` for a training that completed or diverged.

    Args:
        run: the training's directory.
        code: exit code of the training.
        log: its log.
        since: bytes of ``log`` that earlier attempts wrote.

    Raises:
        UserError: it failed with an error; the message is the training's own.
    """
    lines = _lines(log, since)
    reason, outcome = "", DIVERGED
    if code:
        attempt = _read(lines)
        if attempt.ended_by_guard:
            reason, outcome = attempt.divergence, attempt.failure
        else:
            reason = floating_point_error(lines)
        if not reason:
            raise UserError(error_message(lines) or f"the training ended with code {code}; see {log}")
    whole = _read(_lines(log, 0))
    updates, epochs = whole.updates, whole.epochs
    ending = Ending(updates, epochs, reason, outcome)
    record = {"num_updates": updates, "epochs": epochs, **({"outcome": outcome, "reason": reason} if reason else {})}
    write_whole(run / "finished", json.dumps(record) + "\n")
    return ending


def _lines(log: Path, since: int) -> list[str]:
    with open(log, "rb") as stream:
        stream.seek(since)
        return stream.read().decode("utf-8", errors="replace").splitlines()


def _read(lines: list[str]) -> TrainingLog:
    log = TrainingLog()
    for line in lines:
        log.take(line)
    return log
