"""Whether a training fits what it is given: its data, the disk and the memory. Asked before it starts.

A training that stops after two days because the disk is full, or after ten minutes because the languages are wrong,
says so here in one line.
"""

from __future__ import annotations

import hashlib
import math
import re
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError

BYTES_OF_WEIGHT = {"fp32": 4, "amp": 4, "fp16": 2, "bf16": 2}
BYTES_IN_MEMORY = {"fp32": 16, "amp": 16, "fp16": 20, "bf16": 20}
"""A parameter with its gradient, Adam's two moments and, in half precision, its float32 copy and gradient."""
MOMENTS = {"sgd": 1, "nag": 1, "adafactor": 1, "adagrad": 1, "adadelta": 2, "adamax": 2}
"""Float32 values that an optimiser keeps for a parameter; two where it is not listed, as Adam."""
LOGITS = 3
"""Copies of the logits that live at once: in training precision, their log-softmax in float32, its gradient."""


@dataclass(frozen=True)
class Corpus:
    """Binarised data, as far as the checks want to know it.

    Args:
        fingerprint: of the dictionaries and of the training files' sizes; the same wherever the directory stands.
        training_tokens: of the longer side; 0 where it is not known.
        longest: tokens of the longest training sentence that the model takes; None where this is not known.
    """

    fingerprint: str
    training_tokens: int
    longest: int | None


def binarised(data: Path) -> Path:
    """The directory to hand to fairseq: ``data-bin`` of a prepared directory, or ``data`` itself.

    Raises:
        UserError: there is no such directory.
    """
    if not data.is_dir():
        raise UserError(f"{data}: no such directory of prepared data")
    inner = data / "data-bin"
    return inner if inner.is_dir() else data


def check_data(data: Path, config: Any) -> Corpus:
    """See that the files that the task will read are there and not empty.

    Raises:
        UserError: one line naming the first file that is absent, or the languages that are there instead.
    """
    pair = _languages(data, config.task)
    sides = pair or ("",)
    dictionaries = [data / (f"dict.{side}.txt" if side else "dict.txt") for side in sides]
    if not _reads_binarised_text(config.task):
        return Corpus(_fingerprint(sorted(data.glob("*.txt")), []), 0, max(_positions(config), default=None))
    splits = [str(getattr(config.dataset, "train_subset", "train"))]
    if not config.dataset.disable_validation:
        splits += str(config.dataset.valid_subset).split(",")
    names = [f"{split}.{'-'.join(pair)}.{side}" if pair else split for split in splits for side in sides]
    for file in [*dictionaries, *(data / f"{name}.{end}" for name in names for end in ("bin", "idx"))]:
        _require(file, data)
    _check_shared_dictionary(dictionaries, config.model)
    training = [data / f"{name}.bin" for name in names[: len(sides)]]
    longest = _longest(training, config) if pair else int(config.task.tokens_per_sample)
    return Corpus(_fingerprint(dictionaries, training), _tokens(training, dictionaries), longest)


def _reads_binarised_text(task: Any) -> bool:
    return str(task._name) in ("translation", "language_modeling") or bool(task.get("source_lang"))


def _languages(data: Path, task: Any) -> tuple[str, str] | None:
    """Source and target; None for a task without. fairseq looks them up in the names of files where none are given."""
    if "source_lang" not in task:
        return None
    matches = [re.fullmatch(r"\w+\.(\w+)-(\w+)\.\1\.idx", path.name) for path in data.glob("*.idx")]
    found = sorted({match.groups() for match in matches if match})
    wanted = (task.source_lang, task.target_lang)
    if None in wanted:
        if len(found) != 1:
            raise UserError(f"{data}: holds {len(found)} language pairs: give task.source_lang and task.target_lang")
        return str(found[0][0]), str(found[0][1])
    if found and wanted not in found:
        shown = ", ".join("-".join(pair) for pair in found)
        raise UserError(f"{data}: holds {shown}, but the configuration translates {'-'.join(wanted)}")
    return str(wanted[0]), str(wanted[1])


def _require(file: Path, data: Path) -> None:
    if not file.is_file():
        raise UserError(f"{data}: holds no {file.name}; is it a directory that prepare or fairseq-preprocess made?")
    if file.stat().st_size == 0:
        raise UserError(f"{file}: empty")


def _check_shared_dictionary(dictionaries: list[Path], model: Any) -> None:
    if len(dictionaries) < 2 or not model.get("share_all_embeddings"):
        return
    first, second = (each.read_bytes() for each in dictionaries[:2])
    if first != second:
        raise UserError(
            f"{dictionaries[0]} and {dictionaries[1].name} differ, but model.share_all_embeddings wants one dictionary "
            "(fairseq-preprocess --joined-dictionary)"
        )


def _fingerprint(dictionaries: list[Path], training: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in dictionaries:
        digest.update(path.read_bytes())
    for path in training:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
    return digest.hexdigest()


def _tokens(training: list[Path], dictionaries: list[Path]) -> int:
    """Fairseq stores two bytes a token where the dictionary allows it, else four."""
    return max(
        path.stat().st_size // (2 if sum(1 for _ in dictionary.open("rb")) < 65500 - 4 else 4)
        for path, dictionary in zip(training, dictionaries, strict=True)
    )


def _positions(config: Any) -> list[int]:
    """The most tokens of a source and of a target, where they are known; fairseq leaves longer sentences out."""
    limits = (
        [group.get(f"max_{side}_positions") for group in (config.task, config.model)] for side in ("source", "target")
    )
    return [min(int(each) for each in both if each) for both in limits if any(both)]


def _longest(training: list[Path], config: Any) -> int | None:
    """The longest of the sentences that no side is too long in; None where the limits of length are not known."""
    import numpy as np

    positions = _positions(config)
    if len(positions) != len(training) or config.task.get("truncate_source"):
        return max(positions, default=None)
    try:
        sizes = [_sizes(path) for path in training]
    except (AssertionError, AttributeError, ValueError, struct.error) as error:
        raise UserError(f"{training[0].parent}: the index of a training file is damaged: prepare it again") from error
    taken = np.all([size <= limit for size, limit in zip(sizes, positions, strict=True)], axis=0)
    return int(np.max(np.max(sizes, axis=0)[taken], initial=1))


def _sizes(binary: Path) -> Any:
    import numpy as np
    from fairseq.data.data_utils import load_indexed_dataset

    # Its sizes are a view into a file, which it closes when it goes.
    dataset = load_indexed_dataset(str(binary.with_suffix("")))
    return np.array(dataset.sizes)


def count_parameters(config: Any) -> tuple[int, int]:
    """Number of parameters, shared ones once, and size of the output vocabulary, without memory for either.

    Raises:
        UserError: the model's settings contradict each other, or a file that the task reads is absent.
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
    """Size of one checkpoint: weights, the optimiser's moments, the moving average where it is kept."""
    weight = BYTES_OF_WEIGHT[precision]
    total = weight
    if not config.checkpoint.no_save_optimizer_state:
        total += 4 * MOMENTS.get(str(config.optimizer._name), 2)
    if config.ema.store_ema:
        total += weight + (4 if config.ema.ema_fp32 else 0)
    return parameters * total


def kept_checkpoints(config: Any, updates: float, epochs: float) -> int:
    """The most checkpoints that are on disk at once, the one being written included.

    Args:
        config: the training.
        updates: that it will make.
        epochs: that it will take; both may be infinite, where nothing says when the training ends.
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
    """Checkpoints of one kind: all that are made where there is no limit; a training without end counts for ten."""
    made = made if math.isfinite(made) else 10.0
    return min(limit, math.ceil(made)) if limit > 0 else math.ceil(made)


def length_of(config: Any, tokens_per_update: int | None, training_tokens: int) -> tuple[float, float]:
    """Updates and epochs of a training, from its limits and the size of its data; infinite where nothing says."""
    updates = float(config.optimization.max_update or math.inf)
    epochs = float(config.optimization.max_epoch or math.inf)
    if tokens_per_update and training_tokens:
        in_an_epoch = max(1.0, training_tokens / tokens_per_update)
        return min(updates, epochs * in_an_epoch), min(epochs, updates / in_an_epoch)
    return updates, epochs


def check_disk(run: Path, needed: int, count: int) -> None:
    """See that the checkpoints fit, counting those of ``run`` that are there already.

    Raises:
        UserError: they do not.
    """
    present = sum(path.stat().st_size for path in (run / "checkpoints").glob("*.pt")) if run.is_dir() else 0
    free = shutil.disk_usage(_nearest_existing(run)).free
    if needed > free + present:
        raise UserError(
            f"{run}: {count} checkpoints need about {gigabytes(needed)}, and {gigabytes(free + present)} are free: "
            "keep fewer (checkpoint.keep_last_epochs=N, checkpoint.keep_interval_updates=N) or take another disk"
        )


def _nearest_existing(path: Path) -> Path:
    return next(each for each in (path.resolve(), *path.resolve().parents) if each.exists())


def bytes_in_memory(parameters: int, vocabulary: int, config: Any, precision: str, max_tokens: int | None) -> int:
    """The least that one process will take: parameters with all that belongs to them, and the logits of a batch.

    What the layers keep for the backward pass comes on top; it is no part of this, so that a training that would fit
    is never refused.
    """
    logits = (max_tokens or 0) * vocabulary * 4 * LOGITS
    average = parameters * 8 if config.ema.store_ema else 0
    return parameters * BYTES_IN_MEMORY[precision] + average + logits


def check_memory(needed: int, available: int | None, where: str) -> None:
    """See that the least that is needed is there.

    Raises:
        UserError: it is not.
    """
    if available is not None and needed > available:
        raise UserError(
            f"the training needs at least {gigabytes(needed)} of memory, and {where} has {gigabytes(available)}: "
            "give a smaller dataset.max_tokens and a larger optimization.update_freq, or a smaller model"
        )


def gigabytes(size: int) -> str:
    """A size for people."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def flat(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested dictionaries under their full names."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
