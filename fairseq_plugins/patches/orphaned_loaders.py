"""A process that loads batches goes on for ever where the training is killed while that process starts.

It ends when the number of its parent changes. After the kill, the first number it reads is another process's.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from torch.utils.data._utils import worker


def watch_who_started_it(initialise: Callable[[Any], None], watchdog: Any) -> None:
    """``ManagerWatchdog.__init__``, with the process that has forked this one in place of today's parent."""
    initialise(watchdog)
    parent = multiprocessing.parent_process()
    if parent is not None:
        watchdog.manager_pid = parent.pid


WRAPPED = ((worker.ManagerWatchdog, "__init__", watch_who_started_it),)
"""What tells a worker of torch's DataLoader that its training has ended."""
