"""Select checkpoints of a directory: the last few by update or by epoch, or the best few by a metric."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

from fairseq_plugins.checkpoints.files import num_updates, read_checkpoint
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
    """Return the newest ``count`` checkpoints saved by update or by epoch, oldest first.

    Raises:
        UserError: the directory does not exist or has fewer.
    """
    _require(f"--last-{kind}s", count, directory)
    saved = numbered_checkpoints(directory, pattern)
    if len(saved) < count:
        raise UserError(f"{directory}: only {len(saved)} checkpoints saved by {kind}, fewer than the {count} requested")
    return saved[-count:]


class Scored(NamedTuple):
    """A checkpoint, its updates, and the metric and value of the validation before it; smaller values are better."""

    path: Path
    updates: int
    metric: str
    loss: float


def best_checkpoints(directory: Path, count: int) -> list[Path]:
    """Return the ``count`` best checkpoints by their validation when they were saved, oldest first.

    The values are read from the files. A name such as ``checkpoint.best_bleu_34.1202.pt`` has a rounded value followed
    by a random digit; the stored meters of validation are sums over all validations so far. Files that are copies of
    one another count once; of equal values the newest is better.

    Raises:
        UserError: the directory does not exist, has fewer, or its checkpoints have different metrics.
    """
    _require("--best", count, directory)
    lasting = [*numbered_checkpoints(directory, EPOCH_CHECKPOINT), *numbered_checkpoints(directory, UPDATE_CHECKPOINT)]
    # Those with a lasting name come last, and so replace their copies (last, best).
    paths = [*sorted(set(directory.glob("checkpoint*.pt")) - set(lasting)), *lasting]
    scored = {checkpoint.updates: checkpoint for path in paths if (checkpoint := read_score(path)) is not None}
    metrics = sorted({checkpoint.metric for checkpoint in scored.values()})
    if len(metrics) > 1:
        raise UserError(f"{directory}: its checkpoints have different metrics ({', '.join(metrics)}): use --inputs")
    if len(scored) < count:
        raise UserError(f"{directory}: only {len(scored)} checkpoints saved after a validation, not {count}")
    best = sorted(scored.values(), key=lambda checkpoint: (checkpoint.loss, -checkpoint.updates))[:count]
    return [checkpoint.path for checkpoint in sorted(best, key=lambda checkpoint: checkpoint.updates)]


def read_score(path: Path) -> Scored | None:
    """Return the validation result in a checkpoint; None if it was saved without validation.

    The metric is the ``--best-checkpoint-metric`` of the training, the only one whose value fairseq keeps.

    Raises:
        UserError: the file cannot be read.
    """
    state = read_checkpoint(path)
    value = (state.get("extra_state") or {}).get("val_loss")
    updates = num_updates(state)
    if value is None or updates is None:
        return None
    # Old checkpoints have `args` instead.
    settings = (state.get("cfg") or {}).get("checkpoint") or vars(state.get("args") or Namespace())
    sign = -1 if settings.get("maximize_best_checkpoint_metric", False) else 1
    return Scored(path, updates, str(settings.get("best_checkpoint_metric", "loss")), sign * float(value))


def _require(flag: str, count: int, directory: Path) -> None:
    if count < 1:
        raise UserError(f"{flag} must be at least 1, not {count}")
    if not directory.is_dir():
        raise UserError(f"{directory}: no such directory of checkpoints")
