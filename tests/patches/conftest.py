"""The toy corpus and a checkpoint, once for all tests of this folder, with every patch applied as the plugin does."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fairseq.tasks.translation import TranslationTask

from fairseq_plugins import patches
from tests import toy

patches.apply()

Unpatch = Callable[..., None]
"""Gives functions of a class or module the form that fairseq has them in, as long as a test runs."""


@pytest.fixture
def unpatch(monkeypatch: pytest.MonkeyPatch) -> Unpatch:
    def restore(owner: Any, *names: str) -> None:
        for name in names:
            monkeypatch.setattr(owner, name, inspect.unwrap(getattr(owner, name)))

    return restore


def watched(patch: pytest.MonkeyPatch, step: str, see: Callable[[Any], Any] = lambda s: s["id"].tolist()) -> list[Any]:
    """Results of ``see`` (default: the numbers of the sentences) for each batch of a step of the task from now on."""
    seen: list[Any] = []
    stock = getattr(TranslationTask, step)

    def watch(self, sample, *args, **kwargs):  # type: ignore[no-untyped-def]
        seen.append(see(sample))
        return stock(self, sample, *args, **kwargs)

    patch.setattr(TranslationTask, step, watch)
    return seen


@pytest.fixture(scope="session")
def toy_checkpoint(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model trained for four updates, stored as ``fairseq-train --eval-bleu`` stores it."""
    flags = ("--max-update", "4", "--no-epoch-checkpoints", "--eval-bleu", "--eval-bleu-args", '{"beam": 1}')
    return toy.train_toy(toy_data, tmp_path_factory.mktemp("run"), *flags, "--log-format", "json", validate=True)
