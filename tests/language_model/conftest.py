"""The character-level text, once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.language_model import text


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The binarised text; ``text/<split>.txt`` beside it is what was binarised."""
    return text.binarise(tmp_path_factory.mktemp("characters"))
