"""Check that a training fits the disk and the memory before it starts."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError
from fairseq_plugins.pipeline.machine import Machine

BYTES_OF_WEIGHT = {"fp32": 4, "amp": 4, "fp16": 8, "bf16": 8}
"""In a checkpoint, where fairseq stores half precision as float32; the master weights come on top of it."""
BYTES_IN_MEMORY = {"fp32": 16, "amp": 16, "fp16": 20, "bf16": 20}
"""A parameter with its gradient, Adam's two moments and, in half precision, its float32 copy and gradient."""
MOMENTS = {"sgd": 1, "nag": 1, "adafactor": 1, "adagrad": 1, "adadelta": 2, "adamax": 2}
"""Float32 values that an optimiser keeps for a parameter; two where it is not listed, as Adam."""
LOGITS = 3
"""Copies of the logits that live at once: in training precision, their log-softmax in float32, its gradient."""
ACTIVATIONS = {"encoder": 8.625, "decoder": 16.125}
"""Numbers that a layer keeps for the backward pass, in its width per token, with a feed-forward width on top.

Those of Post-LN and most methods; norms that are no LayerNorm and additional norms keep up to 1.9 times as many.
"""
IMPORTS = 250_000_000
"""Bytes of a process on a CPU that has only imported what it trains with."""


@dataclass(frozen=True)
class Size:
    """Disk and memory that a training needs.

    Args:
        parameters: of the model; shared ones count once.
        checkpoints: maximum number on disk at once.
        disk: bytes of these checkpoints.
        memory: minimum bytes of one process.
        expected: bytes that one process will probably take, on a CPU or of a GPU.
    """

    parameters: int
    checkpoints: int
    disk: int
    memory: int
    expected: int


def size_of(
    config: Any,
    precision: str,
    tokens_per_update: int | None,
    training_tokens: int,
    max_tokens: int | None,
    on_cpu: bool = True,
) -> Size:
    """Disk and memory that a training needs, from its configuration.

    Args:
        config: the training.
        precision: of the training.
        tokens_per_update: maximum; None without a limit.
        training_tokens: of its data; 0 if unknown.
        max_tokens: of one batch of one process.
        on_cpu: whether the program shares the memory with the model.

    Raises:
        UserError: as :func:`count_parameters`.
    """
    parameters, vocabulary = count_parameters(config)
    checkpoints = kept_checkpoints(config, *length_of(config, tokens_per_update, training_tokens))
    memory = bytes_in_memory(parameters, vocabulary, config, precision, max_tokens)
    return Size(
        parameters,
        checkpoints,
        checkpoints * bytes_of_checkpoint(parameters, config, precision),
        memory,
        memory + bytes_of_activations(config.model, max_tokens) + IMPORTS * on_cpu,
    )


def check_size(size: Size, run: Path, machine: Machine, processes: int) -> None:
    """Check that a training fits the disk of ``run`` and the memory of the machine; processes on a CPU share it.

    Raises:
        UserError: it does not.
    """
    check_disk(run, size.disk, size.checkpoints)
    if machine.on_cpu:
        check_memory(size.memory * processes, machine.memory, "this machine")
    else:
        check_memory(size.memory, machine.memory, machine.gpus[0])


def count_parameters(config: Any) -> tuple[int, int]:
    """Number of parameters (shared ones once) and size of the output vocabulary, without allocating the model.

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
    dictionary = getattr(task, "target_dictionary", None)
    return sum(parameter.numel() for parameter in model.parameters()), len(dictionary) if dictionary is not None else 0


def bytes_of_checkpoint(parameters: int, config: Any, precision: str) -> int:
    """Size of one checkpoint: weights, the optimiser's moments, and the moving average if there is one."""
    total = BYTES_OF_WEIGHT[precision]
    if not config.checkpoint.no_save_optimizer_state:
        total += 4 * MOMENTS.get(str(config.optimizer._name), 2)
    if config.ema.store_ema:
        total += 8 if config.ema.ema_fp32 else 4
    return parameters * total


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
    kept = 1.0 + (not checkpoint.no_last_checkpoints) + (not config.dataset.disable_validation)
    kept += checkpoint.keep_best_checkpoints if checkpoint.keep_best_checkpoints > 0 else 0
    if checkpoint.save_interval_updates > 0:
        kept += _at_most(checkpoint.keep_interval_updates, updates / checkpoint.save_interval_updates)
    if not checkpoint.no_epoch_checkpoints:
        kept += _at_most(checkpoint.keep_last_epochs, epochs / max(1, checkpoint.save_interval))
    return math.ceil(kept)


def _at_most(limit: int, made: float) -> float:
    """Checkpoints of one kind: without a limit all that will be written, or ten for a training without end."""
    made = made if math.isfinite(made) else 10.0
    return min(limit, math.ceil(made)) if limit > 0 else math.ceil(made)


def length_of(config: Any, tokens_per_update: int | None, training_tokens: int) -> tuple[float, float]:
    """Updates and epochs of a training, from its limits and the size of its data; infinite without a limit."""
    updates = float(config.optimization.max_update or math.inf)
    epochs = float(config.optimization.max_epoch or math.inf)
    if tokens_per_update and training_tokens:
        in_an_epoch = max(1.0, training_tokens / tokens_per_update)
        return min(updates, epochs * in_an_epoch), min(epochs, updates / in_an_epoch)
    return updates, epochs


def check_disk(run: Path, needed: int, count: int) -> None:
    """Check that the checkpoints fit on the disk, counting those that ``run`` has already.

    Raises:
        UserError: they do not.
    """
    present = sum(path.stat().st_size for path in (run / "checkpoints").glob("*.pt")) if run.is_dir() else 0
    free = shutil.disk_usage(_nearest_existing(run)).free
    if needed > free + present:
        raise UserError(
            f"{run}: {count} checkpoints need about {gigabytes(needed)}, and {gigabytes(free + present)} are free: "
            "keep fewer (checkpoint.keep_last_epochs=N, checkpoint.keep_interval_updates=N) or use another disk"
        )


def _nearest_existing(path: Path) -> Path:
    return next(each for each in (path.resolve(), *path.resolve().parents) if each.exists())


def bytes_in_memory(parameters: int, vocabulary: int, config: Any, precision: str, max_tokens: int | None) -> int:
    """Minimum memory of one process: parameters, gradients, optimiser state, and the logits of a batch.

    The imports and the activations for the backward pass are not counted, since there may be fewer of these than
    expected: a training that would fit is never refused.
    """
    logits = (max_tokens or 0) * vocabulary * 4 * LOGITS
    average = parameters * 8 if config.ema.store_ema else 0
    return parameters * BYTES_IN_MEMORY[precision] + average + logits


def bytes_of_activations(model: Any, max_tokens: int | None) -> int:
    """What the layers keep for the backward pass of one batch, in float32.

    Args:
        model: its settings, which name the layers and widths of each stack; of others nothing is known.
        max_tokens: of the batch.
    """
    total = largest = 0.0
    for stack, of_width in ACTIVATIONS.items():
        layers, width, feed_forward = (
            _size_in(model, stack, name) for name in ("layers", "embed_dim", "ffn_embed_dim")
        )
        # A language model has no encoder, and no cross-attention.
        alone = stack == "decoder" and not _size_in(model, "encoder", "layers")
        layer = (ACTIVATIONS["encoder"] if alone else of_width) * width + feed_forward
        largest = max(largest, layer)
        total += layers * (width if getattr(model, "checkpoint_activations", False) else layer)
    recomputed = largest if getattr(model, "checkpoint_activations", False) else 0
    return round((total + recomputed) * 4 * (max_tokens or 0))


def _size_in(model: Any, stack: str, name: str) -> int:
    """A size by either of fairseq's two names for it; 0 of a model that has no such thing, as one of convolutions."""
    nested = getattr(getattr(model, stack, None), name, None)
    found = getattr(model, f"{stack}_{name}", None) if nested is None else nested
    return found if isinstance(found, int) else 0


def check_memory(needed: int, available: int | None, where: str) -> None:
    """Check that the minimum memory is available.

    Raises:
        UserError: it is not.
    """
    if available is not None and needed > available:
        raise UserError(
            f"the training needs at least {gigabytes(needed)} of memory, and {where} has {gigabytes(available)}: "
            "set a smaller dataset.max_tokens and a larger optimization.update_freq, or use a smaller model"
        )


def gigabytes(size: int) -> str:
    """A size in GB or MB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
