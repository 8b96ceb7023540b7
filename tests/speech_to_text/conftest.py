"""The features, once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.speech_to_text import audio


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that fairseq's ``speech_to_text`` task can read."""
    return audio.write(tmp_path_factory.mktemp("speech") / "data")
