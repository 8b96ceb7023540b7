"""How a training ended: at its end, in a loss that is not finite, or by a mistake; ``finished`` keeps the first two.

A loss that is not finite is a result: starting again would only find it again.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.checkpoints.files import num_updates, read_checkpoint
from fairseq_plugins.errors import UserError
from fairseq_plugins.files import write_whole
from fairseq_plugins.runs.training_log import TrainingLog

EXCEPTION = re.compile(r"^(?:\[rank\d+\]: ?)?(?P<text>(?:[A-Za-z_][\w.]*)?(?:Error|Exception|Interrupt)\b.*)$")
FLOATING_POINT = re.compile(r"FloatingPointError: (?P<text>.+)$")
PREFIX = re.compile(r"^error: (?P<text>.+)$")


@dataclass(frozen=True)
class Ending:
    """The end of a training.

    Args:
        num_updates: that were made.
        epochs: that were begun.
        reason: why it failed; empty for one that reached its end.
    """

    num_updates: int
    epochs: int
    reason: str = ""

    @property
    def exit_code(self) -> int:
        """Of the script: 0 for a training that reached its end, 1 for one that diverged."""
        return 1 if self.reason else 0

    def sentence(self) -> str:
        """What to tell the user."""
        done = f"{self.num_updates} updates, {self.epochs} epochs"
        return f"diverged after {done} ({self.reason})" if self.reason else f"finished ({done})"


def finished(run: Path) -> Ending | None:
    """What ``RUN/finished`` says; None where the training is not at its end."""
    try:
        said = json.loads((run / "finished").read_text(encoding="utf-8"))
        return Ending(int(said["num_updates"]), int(said["epochs"]), str(said.get("reason", "")))
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
    reason = ""
    if code:
        reason = _divergence(lines)
        if not reason:
            raise UserError(_last_word(lines) or f"the training ended with code {code}; see {log}")
    updates, epochs = _reached(run, log)
    ending = Ending(updates, epochs, reason)
    record = {"num_updates": updates, "epochs": epochs, **({"outcome": "diverged", "reason": reason} if reason else {})}
    write_whole(run / "finished", json.dumps(record) + "\n")
    return ending


def _lines(log: Path, since: int) -> list[str]:
    with open(log, "rb") as stream:
        stream.seek(since)
        return stream.read().decode("utf-8", errors="replace").splitlines()


def _divergence(lines: list[str]) -> str:
    """Why the loss was not finite, in fairseq's words up to the first full stop; empty where it was."""
    found = [match["text"] for line in lines if (match := FLOATING_POINT.search(line))]
    return re.split(r"\. ", found[-1])[0].rstrip(".") if found else ""


def _last_word(lines: list[str]) -> str:
    """The message of a mistake, or the last line of a trace."""
    for pattern in (PREFIX, EXCEPTION):
        found = [match["text"] for line in lines if (match := pattern.match(line.strip()))]
        # Of several processes the first to fail is the cause; the others say that it has left.
        if found:
            return found[0]
    return ""


def _reached(run: Path, log: Path) -> tuple[int, int]:
    """Updates and epochs by the last checkpoint and, where that says less or is not kept, by the log."""
    last = run / "checkpoints" / "checkpoint_last.pt"
    known = TrainingLog()
    epochs = 0
    for line in _lines(log, 0):
        known.take(line)
        if match := re.search(r'"epoch": (\d+)', line):
            epochs = int(match.group(1))
    if last.is_file():
        state = read_checkpoint(last)
        place = (state.get("extra_state") or {}).get("train_iterator") or {}
        at_end = place.get("iterations_in_epoch", 1) == 0
        epochs = max(epochs, int(place.get("epoch", 0)) - at_end)
        return max(num_updates(state) or 0, known.updates), epochs
    return known.updates, epochs
