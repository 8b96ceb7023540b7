"""The toy corpus, once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import toy


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The binarised toy corpus: 120 training, 20 validation, 60 test sentences."""
    return toy.binarise(tmp_path_factory.mktemp("toy"))
