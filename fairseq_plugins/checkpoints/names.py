"""Which checkpoints a training has, and which of them are averaged: by their names."""

import re
from pathlib import Path

from fairseq_plugins.checkpoints.provenance import LAST
from fairseq_plugins.errors import UserError

SAVED = {"last-updates": re.compile(r"^checkpoint_\d+_(\d+)\.pt$"), "last-epochs": re.compile(r"^checkpoint(\d+)\.pt$")}
"""Names of the checkpoints that are saved by update and by epoch, with their number."""
MOST = {"last-updates": 5, "last-epochs": 10}
"""Default for the number of averaged checkpoints, as in most of the papers."""
_COUNTED = re.compile(r"(last-epochs|last-updates)=([1-9]\d*)")
"""A choice of checkpoints by kind and number."""


def to_average(text: str) -> str:
    """The type of ``--average``: ``last-epochs=10``, ``last-updates=5``, ``none``, or the path of a checkpoint."""
    if text in ("", "none") or _COUNTED.fullmatch(text) or Path(text).is_file():
        return text
    raise UserError(
        f"unknown --average '{text}'; legal values: last-epochs=N, last-updates=N, none, the path of a checkpoint"
    )


def usual_average(directory: Path) -> str:
    """The last :data:`MOST` checkpoints or fewer, as :func:`to_average` names them; ``none`` if none has a number."""
    for kind, most in MOST.items():
        if saved := saved_checkpoints(directory, kind):
            return f"{kind}={min(len(saved), most)}"
    return "none"


def checkpoints_of(choice: str, directory: Path) -> list[Path]:
    """The checkpoints that :func:`to_average` names, oldest first by their number; a UserError if there are fewer."""
    counted = _COUNTED.fullmatch(choice)
    if not counted:
        return [directory / LAST if choice == "none" else Path(choice)]
    kind, count = counted[1], int(counted[2])
    if not directory.is_dir():
        raise UserError(f"{directory}: no such directory")
    if len(saved := saved_checkpoints(directory, kind)) < count:
        by, other = ("update", "epoch") if kind == "last-updates" else ("epoch", "update")
        others = len(saved_checkpoints(directory, f"last-{other}s"))
        hint = f"; {others} are saved by {other}" if others else ""
        raise UserError(f"{directory}: only {len(saved)} checkpoints saved by {by}, not the {count} requested{hint}")
    return saved[-count:]


def newest(directory: Path) -> Path:
    """The newest checkpoint of a training; a UserError if there is none."""
    if (last := directory / LAST).is_file():
        return last
    if latest := [saved[-1] for kind in SAVED if (saved := saved_checkpoints(directory, kind))]:
        from fairseq_plugins.integrity import num_updates, unchecked_content  # imports torch

        return (
            latest[0] if len(latest) == 1 else max(latest, key=lambda path: num_updates(unchecked_content(path)) or 0)
        )
    raise UserError(f"{directory}: contains no checkpoint")


def saved_checkpoints(directory: Path, kind: str) -> list[Path]:
    """The checkpoints of a kind of :data:`SAVED`, oldest first by their number."""
    matches = ((SAVED[kind].match(path.name), path) for path in directory.glob("checkpoint*.pt"))
    return [path for _, path in sorted((int(match[1]), path) for match, path in matches if match)]
