"""Memory of a training on a CPU that nothing uses any more goes back to the system.

The tensors of a step have other sizes in every batch. The GNU C library takes those below 32 MB from one heap, and
keeps what lies free between others: of 4.1 GB that a process had after 80 updates 2.5 GB were free, and it still grew.
``malloc_trim`` gives them back. It takes as long as a tenth of an update, so it is called now and then.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer

from fairseq_plugins.wrapping import wrap

EVERY = 25
"""Number of updates after which memory is given back."""


def give_back() -> None:
    """Return the free part of this process's heap; other C libraries than GNU's have no such function."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def step(train: Callable[..., Any], trainer: Any, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.train_step`` that gives memory back afterwards; on a GPU torch has an allocator of its own."""
    statistics = train(trainer, *args, **kwargs)
    if not trainer.cuda and trainer.get_num_updates() % EVERY == 0:
        give_back()
    return statistics


def install() -> None:
    """Wrap a training's updates; a second call changes nothing."""
    wrap(Trainer, "train_step", step, order=10)
