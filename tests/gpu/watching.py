"""Trainings on the pretended GPU: their losses, and what each of their updates shows."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer
from omegaconf import DictConfig

from tests import toy
from tests.gpu.pretend import SEEN

Places = Mapping[str, int]

IN_FLOAT32 = {
    # Torch's own attention: its softmax is in float32, to which the mask is added.
    "fairseq_plugins/search/step_attention.py attend",
    "fairseq_plugins/methods/merged_attention.py attend",
    # Logits that are passed on to the next layer.
    "fairseq_plugins/methods/realformer.py attend",
    # A square leaves the range of float16 at 256.
    "fairseq_plugins/methods/rms_norm.py forward",
    "fairseq_plugins/methods/shared/precision.py unit",
    # The weights of the streams, a few numbers for each word.
    "fairseq_plugins/methods/hyper_connections.py weights",
    "fairseq_plugins/methods/hyper_connections.py <genexpr>",
    "fairseq_plugins/methods/rms_norm.py backward",
    # The gradient of a mixture, in float32 from blocks in half precision.
    "fairseq_plugins/methods/attention_residuals.py backward",
    "fairseq_plugins/methods/attention_residuals.py <listcomp>",
    # The power iteration.
    "fairseq_plugins/methods/sigma_reparam.py _follow",
}
"""Where half precision meets float32 on purpose."""


class Update(NamedTuple):
    """Events of one update by function: places outside of the tests, without their lines."""

    reads: Places
    sends: Places
    promotions: Places


class Training(NamedTuple):
    """The loss for each sample of every batch, each update, and the entries of the last checkpoint."""

    losses: list[float]
    updates: list[Update]
    state: dict[str, Any]


def by_function(places: Places) -> dict[str, int]:
    """Counts by ``file function``, of files of fairseq and of this package."""
    counts: Counter[str] = Counter()
    for place, count in places.items():
        if place.startswith("fairseq"):
            counts[re.sub(r":\d+", "", place)] += count
    return dict(counts)


def of_package(places: Places) -> dict[str, int]:
    return {place: count for place, count in places.items() if place.startswith("fairseq_plugins/")}


def train(data: Path, directory: Path, *flags: str, arch: str, updates: int = 2) -> Training:
    return watched(parsed(data, directory, *flags, arch=arch, updates=updates))


def parsed(data: Path, directory: Path, *flags: str, arch: str, updates: int = 2) -> DictConfig:
    common = ("--dropout", "0", "--no-epoch-checkpoints", "--max-update", str(updates))
    return toy.parse_training(data, directory, *common, *flags, arch=arch)


def watched(config: DictConfig) -> Training:
    """Train with a configuration: on the GPU if there is one, else on the CPU."""
    config.common.cpu = not torch.cuda.is_available()
    train_step, seen = Trainer.train_step, []

    def listen(*args: Any, **kwargs: Any) -> Any:
        SEEN.forget()
        result = train_step(*args, **kwargs)
        seen.append(Update(*map(by_function, (SEEN.reads, SEEN.sends, SEEN.promotions))))
        return result

    def run() -> Path:
        toy.run_training(config)
        return Path(config.checkpoint.save_dir) / "checkpoint_last.pt"

    with mock.patch.object(Trainer, "train_step", listen):
        losses, state = toy.losses_of(TranslationTask, run)
    return Training(losses, seen, state)
