"""Models straight from settings, by the names that tests of translation models know; see ``tests/models.py``."""

from __future__ import annotations

from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationTask

from tests import models
from tests.models import TINY, WORDS, count, logits, residuals, settings, tiny
from tests.models import Inputs as Batch
from tests.models import full as build
from tests.models import inputs as batch

__all__ = [
    "TINY",
    "Batch",
    "batch",
    "build",
    "count",
    "dictionary",
    "residuals",
    "logits",
    "settings",
    "tiny",
    "translation_task",
]


def dictionary(size: int = WORDS) -> Dictionary:
    """``size`` types, fairseq's four special ones among them."""
    return models.dictionary(size)


def translation_task(source: int = WORDS, target: int = WORDS) -> TranslationTask:
    """A task with dictionaries of these sizes; one and the same dictionary where the sizes are equal."""
    return models.task(source, target)
