"""Entries, and their file: one JSON object per line, appended and flushed to the disk.

A killed process loses at most the line it was writing, which a reader skips.
"""

import contextlib
import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import no_link
from fairseq_plugins.records import parse_json

logger = logging.getLogger(__name__)

NAME = "recorder.jsonl"
SUFFIX = "_with_diagnostics"
"""End of the name of a criterion that records."""


@dataclass(frozen=True)
class Entry:
    """The record of one update.

    Attributes:
        update: its number, from 1.
        applied: whether the weights were changed; false after an overflow of fp16, or if a gradient was not finite.
        values: stable names to numbers; see docs/divergence.md.
    """

    update: int
    applied: bool
    values: Mapping[str, float]

    def to_json(self) -> str:
        """Return one line of strict JSON."""
        # Text for numbers that JSON does not have; ``float`` reads each back.
        values = {name: value if math.isfinite(value) else str(value) for name, value in self.values.items()}
        return json.dumps({"update": self.update, "applied": self.applied, "values": values}, allow_nan=False)


def parse(line: str) -> Entry | None:
    """Return the entry of one line; ``None`` for an incomplete line."""
    try:
        content = parse_json(line, {"update": int, "applied": bool, "values": dict})
        values = {name: float(value) for name, value in content["values"].items()}
        return Entry(content["update"], content["applied"], values)
    except (ValueError, OverflowError, TypeError):
        return None


def read(path: str | os.PathLike[str]) -> list[Entry]:
    """Return the entries of a file, the oldest first; incomplete lines are skipped.

    Raises UserError: the file cannot be read.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            return [entry for line in lines if (entry := parse(line)) is not None]
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


class EntryFile:
    """The file of a run; a UserError if nothing can be written there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "ab", opener=no_link):
                pass
        except OSError as error:
            raise UserError(f"{path}: the recorder cannot write there: {error.strerror}") from error

    def resume(self, update: int) -> None:
        """Cut the file behind the last entry up to ``update``: later updates are about to be repeated."""
        with self.path.open("rb+") as file:
            position = end = 0
            last = b"\n"
            for line in file:
                position += len(line)
                entry = parse(line.decode("utf-8", errors="replace"))
                if entry is not None and entry.update <= update:
                    end, last = position, line
            file.truncate(end)
            if not last.endswith(b"\n"):
                file.seek(end)
                file.write(b"\n")

    def __call__(self, entry: Entry) -> None:
        """Append ``entry``. A full disk does not end the training: it logs a warning, and the file stays unchanged."""
        size = self.path.stat().st_size if self.path.exists() else 0
        try:
            with self.path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(entry.to_json() + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                os.truncate(self.path, size)
            logger.warning("%s: update %d is not recorded: %s", self.path, entry.update, error.strerror)
