"""A checkpoint on a full disk: one line, and no partial file."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fairseq_plugins.checkpoints.files import write_checkpoint
from fairseq_plugins.errors import UserError


@pytest.fixture
def at_most_100_kb() -> Iterator[None]:
    """Limit the files of this process to 100,000 bytes, like a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("at_most_100_kb")
def test_a_disk_that_fills_in_the_middle_of_a_save_is_one_line(tmp_path: Path) -> None:
    output = tmp_path / "a.pt"
    with pytest.raises(UserError) as caught:
        write_checkpoint({"model": {"weight": torch.zeros(100_000)}}, output)
    assert caught.value.problems == (f"{output}: cannot be written: File too large",)
    assert list(tmp_path.iterdir()) == []
