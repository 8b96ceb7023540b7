"""Language models straight from settings, by the names that their tests know; see ``tests/models.py``."""

from __future__ import annotations

from tests.models import TINY_LANGUAGE_MODEL as TINY
from tests.models import WORDS, tiny, tokens
from tests.models import full as build
from tests.models import language_modeling as task

__all__ = ["TINY", "WORDS", "build", "task", "tiny", "tokens"]
