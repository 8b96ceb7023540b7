"""Past trainings: the file of their recorder or, without one, their checkpoints.

Both are entries of the same names. A checkpoint after n updates becomes an entry of update n: the weights at its
residual connections and in its histories, and statistics of one batch without dropout.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fairseq_plugins.core.sub_layers import sub_layers
from fairseq_plugins.errors import UserError, nearest
from fairseq_plugins.observe.diagnostics.gradients import loss_of, parts_of
from fairseq_plugins.observe.diagnostics.models import Subject, of_checkpoint
from fairseq_plugins.observe.diagnostics.results import Settings
from fairseq_plugins.observe.recorder import activations
from fairseq_plugins.observe.recorder.entries import NAME, Entry, read
from fairseq_plugins.observe.recorder.gradients import gradient_norms
from fairseq_plugins.pipeline.results import CHECKPOINTS

RECORDER = "recorder"


@dataclass(frozen=True)
class Training:
    """One training.

    Attributes:
        label: its name in tables and plots.
        source: ``recorder`` or ``checkpoints``.
        files: the files that were read.
        entries: makes its entries, the oldest first.
    """

    label: str
    source: str
    files: Sequence[Path]
    entries: Callable[[Settings], list[Entry]]

    @property
    def about(self) -> dict[str, Any]:
        """Return the description for the files of numbers."""
        return {"label": self.label, "source": self.source, "files": list(map(str, self.files))}


def find(paths: Sequence[Path], checkpoints: Sequence[Path], task: Any = None) -> list[Training]:
    """Return the trainings that the user names.

    Args:
        paths: files of a recorder, or directories with one, with several below them, or with checkpoints.
        checkpoints: checkpoints of one more training.
        task: with the dictionaries of the corpus for measuring checkpoints; by default made-up words.

    Raises:
        UserError: no training was given, or there is none.
    """
    sources: list[list[Path]] = []
    problems: list[str] = []
    for path in paths:
        try:
            sources += [files for files in _sources(path) if files not in sources]
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(problems)
    sources += [list(checkpoints)] if checkpoints else []
    if not sources:
        raise UserError(f"no training given: name a {NAME}, a directory with one, or --checkpoint FILE ...")
    places = [_place(files[0]).absolute() for files in sources]
    above = os.path.commonpath([place.parent for place in places])
    trainings, names = [], [os.path.relpath(place, above) for place in places]
    for name, files in zip(names, sources, strict=True):
        source = CHECKPOINTS if files[0].suffix == ".pt" else RECORDER
        label = name if names.count(name) == 1 else f"{name}, {source}"
        trainings.append(Training(label, source, files, partial(_entries, files, task)))
    return trainings


def _place(file: Path) -> Path:
    """Return the path that names a training: the directory of its run, or a recorder's file with a specific name."""
    file = file.absolute()
    if file.suffix != ".pt" and file.name != NAME:
        return file
    return file.parent.parent if file.parent.name == CHECKPOINTS else file.parent


def _sources(path: Path) -> list[list[Path]]:
    """Return the files of every training at ``path``.

    Raises:
        UserError: there is none.
    """
    if path.is_file():
        if path.suffix == ".pt":
            raise UserError(f"{path}: this is a checkpoint; use --checkpoint FILE ... for those of one training")
        return [[path]]
    if not path.exists():
        beside = sorted(entry.name for entry in path.parent.iterdir()) if path.parent.is_dir() else []
        raise UserError(f"{path}: no such file or directory{nearest(path.name, beside)}")
    for directory in (path, path / CHECKPOINTS):
        if (directory / NAME).is_file():
            return [[directory / NAME]]
        if saved := sorted(directory.glob("checkpoint*.pt")):
            return [saved]
    below = sorted(path.rglob(NAME))
    if not below:
        raise UserError(f"{path}: no {NAME} in it or below it, and no checkpoint*.pt in it or in {CHECKPOINTS}/")
    return [[file] for file in below]


def _entries(files: Sequence[Path], task: Any | None, settings: Settings) -> list[Entry]:
    """Read a recorder's file, or measure each checkpoint; copies of a checkpoint count once.

    Raises:
        UserError: a file has no entry, cannot be read, or does not record its number of updates.
    """
    if files[0].suffix != ".pt":
        entries = read(files[0])
        if not entries:
            empty = not files[0].stat().st_size
            why = "empty: nothing is recorded yet" if empty else "no whole entry of a recorder in it"
            raise UserError(f"{files[0]}: {why}")
        return entries
    measurements: dict[int, Entry] = {}
    for path in files:
        subject = of_checkpoint(path, task)
        if subject.updates is None:
            raise UserError(f"{path}: the checkpoint does not say how many updates it has seen")
        if subject.updates not in measurements:
            settings.progress(str(path))
            measurements[subject.updates] = measured(subject, subject.updates, settings)
    return [measurements[update] for update in sorted(measurements)]


def measured(subject: Subject, update: int, settings: Settings) -> Entry:
    """Return what the recorder would write for a model and one batch, without dropout."""
    batch = settings.batch(subject)
    model = subject.ready(batch, settings.seed)
    connections, parts = sub_layers(model), list(parts_of(batch))
    watch = activations.ActivationWatch(model, connections, activations.norms(model), [False] * len(parts))
    pad = model.decoder.padding_idx
    words, total = int(batch.target.ne(pad).sum()), 0.0
    with watch.hooked():
        for part in parts:
            with watch.forward_pass():
                loss = loss_of(model, part) * (int(part.target.ne(pad).sum()) / words)
            watch.saw(loss, 1)
            loss.backward()
            total += float(loss.detach())
    values = {"loss": total / math.log(2), **gradient_norms([model], 1.0)}
    values.update(activations.scales(connections))
    values.update(activations.history_weights(model))
    for name, (squares, count) in watch.sums.read(watch.sums.vector(torch.device("cpu")).tolist()).items():
        values[name] = math.sqrt(squares if name.endswith(activations.BRANCH_GRADIENT) else squares / count)
    return Entry(update, True, values)
