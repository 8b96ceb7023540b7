"""Check binarised data before a training or an evaluation starts."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError
from fairseq_plugins.sums import require_sums


def binarised(data: Path) -> Path:
    """The directory that fairseq reads: ``data/data-bin``, or ``data`` itself; a UserError if there is none."""
    if not data.is_dir():
        raise UserError(f"{data}: no such directory")
    inner = data / "data-bin"
    return inner if inner.is_dir() else data


def check_data(data: Path, config: Any) -> tuple[Path, ...]:
    """Return dictionaries and training files; a UserError if a file of the task is missing, empty or changed."""
    task, dataset = config.task, config.dataset
    pair = languages_of(data, task) if "source_lang" in task else None
    sides = pair or ("",)
    if str(task._name) not in ("translation", "language_modeling") and not task.get("source_lang"):
        return tuple(sorted(data.glob("*.txt")))
    dictionaries = [data / (f"dict.{side}.txt" if side else "dict.txt") for side in sides]
    splits = [str(getattr(dataset, "train_subset", "train"))]
    if not dataset.disable_validation:
        splits += str(dataset.valid_subset).split(",")
    names = [f"{split}.{'-'.join(pair)}.{side}" if pair else split for split in splits for side in sides]
    for path in [*dictionaries, *(data / f"{name}.{end}" for name in names for end in ("bin", "idx"))]:
        if not path.is_file():
            made_by = "is it an output of fairseq-deep prepare or fairseq-preprocess?"
            raise UserError(f"{data}: contains no {path.name}; {made_by}")
        if path.stat().st_size == 0:
            raise UserError(f"{path}: empty")
        require_sums(data, path.name)
    training = [data / f"{name}.bin" for name in names[: len(sides)]]
    return (*dictionaries, *training, *(path.with_suffix(".idx") for path in training))


def languages_of(data: Path, task: Mapping[str, Any]) -> tuple[str, str]:
    """Source and target of a task, unset ones from the file names; a UserError if the data has other languages."""
    matches = [re.fullmatch(r"\w+\.(\w+)-(\w+)\.\1\.idx", path.name) for path in data.glob("*.idx")]
    pairs = sorted({match.groups() for match in matches if match})
    configured = (task.get("source_lang"), task.get("target_lang"))
    if None in configured and len(pairs) != 1:
        raise UserError(f"{data}: contains {len(pairs)} language pairs; set task.source_lang and task.target_lang")
    if None not in configured and pairs and configured not in pairs:
        shown = ", ".join("-".join(pair) for pair in pairs)
        raise UserError(f"{data}: contains {shown}, but the configuration translates {'-'.join(map(str, configured))}")
    source, target = pairs[0] if None in configured else configured
    return str(source), str(target)
