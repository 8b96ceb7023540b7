"""A training on a CPU gives back the memory that nothing uses."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from fairseq_plugins.training import returned_memory
from fairseq_plugins.training.returned_memory import Heap, heap_of_this_process, resident


def test_it_gives_back_when_it_has_grown_by_half() -> None:
    """What an update needs is what the process has after the first update, and after each that follows a return."""
    sizes = iter([100, 140, 150, 151, 130, 190, 194, 196, 90, 194, 196])
    returned: list[int] = []
    heap = Heap(lambda: next(sizes), lambda: returned.append(number))
    for number in range(11):  # noqa: B007 (the function reads it)
        heap.after_update()
    assert returned == [3, 7, 10]


def test_memory_between_what_is_in_use_goes_back() -> None:
    if heap_of_this_process() is None:
        pytest.skip("the C library of this machine gives nothing back")
    kept = [torch.zeros(25_000) for _ in range(4_000)]  # 100 kB each, which the C library takes from its heap
    kept[:] = [tensor for number, tensor in enumerate(kept) if number % 40 == 39]
    free = resident()
    heap = heap_of_this_process()
    assert heap is not None
    heap._give_back()
    assert free - resident() > 0.8 * 400e6
    assert len(kept) == 100


@pytest.mark.parametrize("cuda", [False, True])
def test_every_update_on_a_cpu_is_watched(cuda: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    heap = SimpleNamespace(after_update=lambda: calls.append("heap"))
    monkeypatch.setattr(returned_memory, "heap_of_this_process", lambda: heap)
    trainer = SimpleNamespace(cuda=cuda)
    for _ in range(2):
        assert returned_memory.step(lambda _, batch: calls.append(batch) or "log", trainer, "batch") == "log"
    assert calls == (["batch"] * 2 if cuda else ["batch", "heap"] * 2)
