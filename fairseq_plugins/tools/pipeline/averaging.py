"""Choose the checkpoints to average: the user's choice, else the published row's, else the last ones saved."""

import re
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.checkpoints.names import (
    EPOCH_CHECKPOINT,
    UPDATE_CHECKPOINT,
    last_checkpoints,
    numbered_checkpoints,
)
from fairseq_plugins.checkpoints.provenance import LAST
from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.pipeline.published import PublishedRow
from fairseq_plugins.tools.pipeline.results import Run

COUNTED = re.compile(r"(last-epochs|last-updates)=([1-9]\d*)")
"""A choice of checkpoints by kind and number."""
MOST = {"last-updates": 5, "last-epochs": 10}
"""Default for the number of checkpoints, as in most of the papers."""
_SAVED = {"last-updates": UPDATE_CHECKPOINT, "last-epochs": EPOCH_CHECKPOINT}


def to_average(text: str) -> str:
    """The type of ``--average``: ``last-epochs=10``, ``last-updates=5``, ``none``, or the path of a checkpoint."""
    if text in ("", "none") or COUNTED.fullmatch(text) or Path(text).is_file():
        return text
    raise UserError(
        f"unknown --average '{text}'; legal values: last-epochs=N, last-updates=N, none, the path of a checkpoint"
    )


def choose(run: Run, requested: str, rows: Sequence[PublishedRow]) -> str:
    """The checkpoints to average, as ``--average`` names them.

    Without a request, the published ``rows`` decide, else the last :data:`MOST` checkpoints or fewer. A UserError if
    the rows disagree.
    """
    if requested:
        return requested
    published = sorted({row.average for row in rows})
    if len(published) > 1:
        raise UserError(f"{run.config}: published with different averages ({', '.join(published)}); set --average")
    if published:
        return published[0]
    for kind, pattern in _SAVED.items():
        if saved := numbered_checkpoints(run.checkpoints, pattern):
            return f"{kind}={min(len(saved), MOST[kind])}"
    return "none"


def inputs(choice: str, checkpoints: Path) -> list[Path]:
    """The checkpoints of a result of :func:`choose`, the newest last; a UserError if there are fewer."""
    counted = COUNTED.fullmatch(choice)
    if not counted:
        return [checkpoints / LAST if choice == "none" else Path(choice)]
    kind, count = counted[1], int(counted[2])
    return last_checkpoints(checkpoints, count, _SAVED[kind], kind.removeprefix("last-").removesuffix("s"))


def newest(checkpoints: Path) -> Path:
    """The newest checkpoint of a run; a UserError if there is none."""
    last = checkpoints / LAST
    if last.is_file():
        return last
    for pattern in _SAVED.values():
        if saved := numbered_checkpoints(checkpoints, pattern):
            return saved[-1]
    raise UserError(f"{checkpoints}: contains no checkpoint")
