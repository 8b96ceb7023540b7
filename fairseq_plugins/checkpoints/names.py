"""Names of the checkpoints of a training."""

import re
from pathlib import Path

from fairseq_plugins.errors import UserError

UPDATE_CHECKPOINT = re.compile(r"^checkpoint_(\d+)_(\d+)\.pt$")
EPOCH_CHECKPOINT = re.compile(r"^checkpoint(\d+)\.pt$")


def numbered_checkpoints(directory: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Return the checkpoints of ``directory`` whose name matches ``pattern``, oldest first by their last number."""
    numbered = [
        (int(match.group(match.lastindex or 1)), path)
        for path in directory.glob("checkpoint*.pt")
        if (match := pattern.match(path.name))
    ]
    return [path for _, path in sorted(numbered)]


def last_checkpoints(directory: Path, count: int, pattern: re.Pattern[str], kind: str) -> list[Path]:
    """Return the newest ``count`` checkpoints by update or epoch, oldest first; a UserError if there are fewer."""
    if not directory.is_dir():
        raise UserError(f"{directory}: no such directory")
    saved = numbered_checkpoints(directory, pattern)
    if len(saved) < count:
        raise UserError(f"{directory}: only {len(saved)} checkpoints saved by {kind}, fewer than the {count} requested")
    return saved[-count:]
