"""Which checkpoints of a run are averaged: as the published row says, as the user says, or what there is."""

from __future__ import annotations

import re
from pathlib import Path

from fairseq_plugins.checkpoints.selection import EPOCH_CHECKPOINT, UPDATE_CHECKPOINT, numbered_checkpoints
from fairseq_plugins.errors import UserError
from fairseq_plugins.pipeline.recipes import published_rows
from fairseq_plugins.pipeline.run import Run

LAST = "checkpoint_last.pt"
MOST = {"last-updates": 5, "last-epochs": 10}
"""How many are averaged at most where nothing says how many: what most of the papers do."""
_SAVED = {"last-updates": UPDATE_CHECKPOINT, "last-epochs": EPOCH_CHECKPOINT}
_COUNTED = re.compile(r"(last-epochs|last-updates|best)=([1-9]\d*)")


def choose(run: Run, asked: str) -> str:
    """What to average, as ``last-epochs=10``, ``last-updates=5``, ``best=1``, ``none`` or the path of a checkpoint.

    Args:
        run: the training.
        asked: one of these, or nothing: then the published row of its configuration decides, and where there is none,
            the last :data:`MOST` of the checkpoints that are there.

    Raises:
        UserError: ``asked`` is none of these, or the published rows of the configuration do not agree.
    """
    if asked:
        if asked != "none" and not _COUNTED.fullmatch(asked) and not Path(asked).is_file():
            raise UserError(
                f"--average {asked}: neither the path of a checkpoint nor a legal value: last-epochs=N, "
                "last-updates=N, best=N, none"
            )
        return asked
    published = sorted({row.average for row in published_rows(run)})
    if len(published) > 1:
        raise UserError(f"{run.config}: published with different averages ({', '.join(published)}); give --average")
    return published[0] if published else _what_there_is(run.checkpoints)


def _what_there_is(checkpoints: Path) -> str:
    for kind, pattern in _SAVED.items():
        if saved := numbered_checkpoints(checkpoints, pattern):
            return f"{kind}={min(len(saved), MOST[kind])}"
    return "none"


def flags(choice: str, checkpoints: Path) -> list[str]:
    """Flags of ``fairseq-deep average`` for a result of :func:`choose`."""
    if counted := _COUNTED.fullmatch(choice):
        return [f"--{counted[1]}", counted[2], "--checkpoints", str(checkpoints)]
    return ["--inputs", str(checkpoints / LAST if choice == "none" else Path(choice))]


def newest(checkpoints: Path) -> Path:
    """The newest checkpoint of a run, whose settings are those of all.

    Raises:
        UserError: there is none.
    """
    last = checkpoints / LAST
    if last.is_file():
        return last
    if not checkpoints.is_dir():
        raise UserError(f"{checkpoints}: no such directory of checkpoints")
    for pattern in _SAVED.values():
        if saved := numbered_checkpoints(checkpoints, pattern):
            return saved[-1]
    raise UserError(f"{checkpoints}: holds no checkpoint")
