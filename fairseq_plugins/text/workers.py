"""Apply one function to many lines on several cores, in order."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from typing import Any, TypeVar

from fairseq_plugins.orphans import end_with

CHUNK = 2000
"""Lines per task of a worker."""

Transform = Callable[[str], str]
Given = TypeVar("Given")
Made = TypeVar("Made")

_transform: Callable[[Any], Any] = str


def map_lines(
    make: Callable[[], Callable[[Given], Made]], lines: Iterable[Given], workers: int = 1, at_once: int = 0
) -> Iterator[Made]:
    """``make()(line)`` for every line, in order. If this process is interrupted, the workers are ended, too.

    Args:
        make: returns the function; called once in each worker, because such functions have tables and caches.
        lines: read only as fast as the workers process them, so a corpus may be larger than the memory.
        workers: processes; 1 processes the lines in this one.
        at_once: lines per task of a worker; 0 means :data:`CHUNK`.

    Raises:
        Exception: whatever the function raises.
    """
    if workers == 1:
        yield from map(make(), lines)
        return
    # fork: a spawned worker would import the whole package, which takes seconds.
    context = multiprocessing.get_context("fork")
    iterator = iter(lines)
    with ProcessPoolExecutor(workers, context, _start, (make, os.getpid())) as pool:
        waiting: deque[Future[list[Made]]] = deque()
        others = set(multiprocessing.active_children())
        try:
            while chunk := list(islice(iterator, at_once or CHUNK)):
                waiting.append(pool.submit(_work, chunk))
                if len(waiting) > 2 * workers:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        except BaseException:
            # A worker would otherwise finish its task, which may take minutes.
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            raise


def _start(make: Callable[[], Callable[[Any], Any]], parent: int) -> None:
    """Set up a worker: it ignores Ctrl-C, which the parent handles, and ends with the parent."""
    global _transform
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent, signal.SIGKILL)
    _transform = make()


def _work(lines: list[Any]) -> list[Any]:
    return [_transform(line) for line in lines]
