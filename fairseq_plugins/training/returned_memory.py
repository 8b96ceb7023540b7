"""Memory of a training on a CPU that nothing uses any more goes back to the system.

The tensors of a step have other sizes in every batch. The GNU C library takes those below 32 MB from one heap, and
keeps what lies free between others: of 4.1 GB that a process had after 80 updates 2.5 GB were free, and it still grew.
``malloc_trim`` gives them back. It takes as long as a tenth of an update, so it waits until it is worth it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq.trainer import Trainer

from fairseq_plugins.patches.wrapping import wrap

GROWTH = 1.5
"""The free part is given back when the process has this many times the memory that an update needs."""
STATM = Path("/proc/self/statm")


class Heap:
    """Watches how a process grows.

    Args:
        resident: returns the bytes that the process has in memory.
        give_back: gives back what is free.
    """

    def __init__(self, resident: Callable[[], int], give_back: Callable[[], object]) -> None:
        self._resident, self._give_back = resident, give_back
        self._needed, self._fresh = 0, True

    def after_update(self) -> None:
        """Give memory back where the process has grown; the first update afterwards shows what an update needs."""
        now = self._resident()
        if self._fresh:
            self._needed = max(self._needed, now)
            self._fresh = False
        elif now > GROWTH * self._needed:
            self._give_back()
            self._fresh = True


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def heap_of_this_process() -> Heap | None:
    """Watch this process; None where the system does not tell its size or the C library gives nothing back."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return Heap(resident, lambda: trim(0)) if trim is not None and STATM.is_file() else None


def step(train: Callable[..., Any], trainer: Any, *given: Any, **named: Any) -> Any:
    """``Trainer.train_step`` that gives memory back afterwards; on a GPU torch has an allocator of its own."""
    statistics = train(trainer, *given, **named)
    if not trainer.cuda:
        if not hasattr(trainer, "heap"):
            trainer.heap = heap_of_this_process()
        if trainer.heap is not None:
            trainer.heap.after_update()
    return statistics


def install() -> None:
    """Wrap a training's updates; a second call changes nothing."""
    wrap(Trainer, "train_step", step, order=10)
