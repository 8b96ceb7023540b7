"""A training that is done ends as aborted (exit code 134), where batches are still read ahead at that moment.

fairseq reads ahead in a daemon thread. When the interpreter ends, Python stops such a thread wherever it is; inside
torch the C++ runtime then ends the process: "terminate called without an active exception".
"""

import atexit
import contextlib
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakSet

from fairseq.data import iterators

PATIENCE = 10.0
"""Seconds that a batch may take to be read when all else has ended."""

_readers: WeakSet[Any] = WeakSet()
_ended = False


def read_until_the_end(run: Callable[[Any], None], reader: Any) -> None:
    """``BackgroundConsumer.run`` that reads nothing more once the interpreter ends."""
    _readers.add(reader)
    reader._source = _until_the_end(reader._source)
    run(reader)


def _until_the_end(source: Iterable[Any]) -> Iterator[Any]:
    """An error of its first item is caught inside of ``run``; outside, a training would wait for ever."""
    for item in source:
        if _ended:
            return
        yield item


@atexit.register
def stop_reading() -> None:
    """Let the threads end between two batches."""
    global _ended
    _ended = True
    latest = time.monotonic() + PATIENCE
    for reader in list(_readers):
        while reader.is_alive() and time.monotonic() < latest:
            # It may wait until there is room for a batch.
            with contextlib.suppress(queue.Empty):
                reader._queue.get_nowait()
            reader.join(0.01)


WRAPPED = ((iterators.BackgroundConsumer, "run", read_until_the_end),)
