"""Check that the checkpoints of a training fit the disk before it starts."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError

BYTES_OF_WEIGHT = {"fp32": 4, "amp": 4, "fp16": 8, "bf16": 8}
"""In a checkpoint, where fairseq stores half precision as float32; the master weights come on top of it."""
MOMENTS = {"sgd": 1, "nag": 1, "adafactor": 1, "adagrad": 1, "adadelta": 2, "adamax": 2}
"""Float32 values that an optimiser keeps for a parameter; two where it is not listed, as Adam."""
ENDLESS = 10
"""Checkpoints that are counted where nothing limits their number."""


@dataclass(frozen=True)
class Size:
    """What a training leaves on the disk.

    Args:
        parameters: of the model; shared ones count once.
        checkpoints: maximum number on disk at once.
        disk: bytes of these checkpoints.
    """

    parameters: int
    checkpoints: int
    disk: int


def size_of(config: Any, precision: str, tokens_per_update: int | None, training_tokens: int) -> Size:
    """What a training leaves on the disk, from its configuration.

    Args:
        config: the training.
        precision: of the training.
        tokens_per_update: maximum; None without a limit.
        training_tokens: of its data; 0 if unknown.

    Raises:
        UserError: as :func:`count_parameters`.
    """
    parameters = count_parameters(config)
    checkpoints = kept_checkpoints(config, *length_of(config, tokens_per_update, training_tokens))
    weight = BYTES_OF_WEIGHT[precision]
    if not config.checkpoint.no_save_optimizer_state:
        weight += 4 * MOMENTS.get(str(config.optimizer._name), 2)
    if config.ema.store_ema:
        weight += 8 if config.ema.ema_fp32 else 4
    return Size(parameters, checkpoints, checkpoints * parameters * weight)


def count_parameters(config: Any) -> int:
    """Number of parameters (shared ones once), without allocating the model.

    Raises:
        UserError: the model's settings contradict each other, or a file that the task reads is missing.
    """
    import torch
    from fairseq.models import build_model
    from fairseq.tasks import setup_task
    from omegaconf import OmegaConf

    try:
        task = setup_task(config.task)
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}" if error.strerror else str(error)) from error
    with torch.device("meta"):
        model = build_model(OmegaConf.create(OmegaConf.to_container(config.model)), task)
    return sum(parameter.numel() for parameter in model.parameters())


def kept_checkpoints(config: Any, updates: float, epochs: float) -> int:
    """Maximum number of checkpoints on disk at once, including the one being written.

    Args:
        config: the training.
        updates: of the whole training.
        epochs: of the whole training; both may be infinite.
    """
    checkpoint = config.checkpoint
    if checkpoint.no_save:
        return 0
    kept = 1 + (not checkpoint.no_last_checkpoints) + (not config.dataset.disable_validation)
    kept += max(0, checkpoint.keep_best_checkpoints)
    limits = []
    if checkpoint.save_interval_updates > 0:
        limits.append((checkpoint.keep_interval_updates, updates / checkpoint.save_interval_updates))
    if not checkpoint.no_epoch_checkpoints:
        limits.append((checkpoint.keep_last_epochs, epochs / max(1, checkpoint.save_interval)))
    for limit, made in limits:
        count = math.ceil(made) if math.isfinite(made) else ENDLESS
        kept += min(limit, count) if limit > 0 else count
    return kept


def length_of(config: Any, tokens_per_update: int | None, training_tokens: int) -> tuple[float, float]:
    """Updates and epochs of a training, from its limits and the size of its data; infinite without a limit."""
    updates = float(config.optimization.max_update or math.inf)
    epochs = float(config.optimization.max_epoch or math.inf)
    if tokens_per_update and training_tokens:
        in_an_epoch = max(1.0, training_tokens / tokens_per_update)
        return min(updates, epochs * in_an_epoch), min(epochs, updates / in_an_epoch)
    return updates, epochs


def check_disk(size: Size, run: Path) -> None:
    """Check that the checkpoints fit on the disk of ``run``, counting those that it has already.

    Raises:
        UserError: they do not.
    """
    present = sum(path.stat().st_size for path in (run / "checkpoints").glob("*.pt"))
    existing = next(path for path in (run.resolve(), *run.resolve().parents) if path.exists())
    free = shutil.disk_usage(existing).free + present
    if size.disk > free:
        raise UserError(
            f"{run}: {size.checkpoints} checkpoints need about {gigabytes(size.disk)}, and {gigabytes(free)} are free: "
            "keep fewer (checkpoint.keep_last_epochs=N, checkpoint.keep_interval_updates=N) or use another disk"
        )


def gigabytes(size: int) -> str:
    """A size in GB or MB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
