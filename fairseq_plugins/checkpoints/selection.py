"""Select checkpoints of a directory: the last few by update or by epoch, or the best few by a metric."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path

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
    """Return the newest ``count`` checkpoints by update or epoch, oldest first; a UserError if there are fewer."""
    saved = numbered_checkpoints(directory, pattern)
    if len(saved) < count:
        raise UserError(f"{directory}: only {len(saved)} checkpoints saved by {kind}, fewer than the {count} requested")
    return saved[-count:]


def best_checkpoints(directory: Path, count: int) -> list[Path]:
    """Return the ``count`` best checkpoints by their validation when they were saved, oldest first.

    The values are read from the files: those of ``--best-checkpoint-metric``, the only ones that fairseq keeps. A name
    such as ``checkpoint.best_bleu_34.1202.pt`` has a rounded value followed by a random digit; the stored meters of
    validation are sums over all validations so far. Files that are copies of one another count once; of equal values
    the newest is better.

    Raises:
        UserError: the directory has fewer, one cannot be read, or they have different metrics.
    """
    lasting = [*numbered_checkpoints(directory, EPOCH_CHECKPOINT), *numbered_checkpoints(directory, UPDATE_CHECKPOINT)]
    # Those with a lasting name come last, and so replace their copies (last, best).
    paths = [*sorted(set(directory.glob("checkpoint*.pt")) - set(lasting)), *lasting]
    scored: dict[int, tuple[float, int, Path]] = {}
    metrics = set()
    for path in paths:
        state = read_checkpoint(path)
        value, updates = (state.get("extra_state") or {}).get("val_loss"), num_updates(state)
        if value is None or updates is None:  # saved without validation
            continue
        # Old checkpoints have `args` instead.
        settings = (state.get("cfg") or {}).get("checkpoint") or vars(state.get("args") or Namespace())
        metrics.add(str(settings.get("best_checkpoint_metric", "loss")))
        sign = -1 if settings.get("maximize_best_checkpoint_metric", False) else 1
        scored[updates] = (sign * float(value), -updates, path)
    if len(metrics) > 1:
        names = ", ".join(sorted(metrics))
        raise UserError(f"{directory}: its checkpoints have different metrics ({names}): use --inputs")
    if len(scored) < count:
        raise UserError(f"{directory}: only {len(scored)} checkpoints saved after a validation, not {count}")
    best = sorted(scored.values())[:count]
    return [path for _, _, path in sorted(best, key=lambda entry: -entry[1])]
