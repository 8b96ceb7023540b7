"""A training on a CPU gives back the memory that nothing uses."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fairseq_plugins.training import returned_memory


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_between_what_is_in_use_goes_back() -> None:
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("the C library of this machine gives nothing back")
    kept = [torch.zeros(25_000) for _ in range(4_000)]  # 100 kB each, which the C library takes from its heap
    kept[:] = [tensor for number, tensor in enumerate(kept) if number % 40 == 39]
    free = resident()
    returned_memory.give_back()
    assert free - resident() > 0.8 * 400e6
    assert len(kept) == 100


def test_now_and_then_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    returned: list[str] = []
    monkeypatch.setattr(returned_memory, "give_back", lambda: returned.append("memory"))
    for cuda, update, calls in ((False, 24, 0), (False, 25, 1), (False, 26, 1), (True, 50, 1), (False, 50, 2)):
        trainer = SimpleNamespace(cuda=cuda, get_num_updates=lambda update=update: update)
        assert returned_memory.step(lambda _, batch: f"log of {batch}", trainer, "batch") == "log of batch"
        assert len(returned) == calls
