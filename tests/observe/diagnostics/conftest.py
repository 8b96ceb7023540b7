"""Fixtures that the tests of the command share."""

import pytest

from fairseq_plugins.tools import plots


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers only: a plot takes longer than what it shows."""
    monkeypatch.setattr(plots, "load_pyplot", lambda: None)
