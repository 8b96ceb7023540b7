"""Apply one function to many lines on several cores, in order."""

import gc
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from typing import Any, TypeVar

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import grouped
from fairseq_plugins.process import end_with

CHUNK = 2000
"""Lines per task of a worker."""

Input = TypeVar("Input")
Output = TypeVar("Output")

_make: Callable[[], Callable[[Any], Any]]


def map_lines(
    make: Callable[[], Callable[[Input], Output]], lines: Iterable[Input], workers: int = 1, at_once: int = 0
) -> Iterator[Output]:
    """Yield ``make()(line)`` for every line, in order. If this process is interrupted, the workers end, too.

    Args:
        make: returns the function; called once in each worker, because such functions have tables and caches.
        lines: read only as fast as the workers process them, so a corpus may be larger than the memory.
        workers: number of processes; 1 processes the lines in this process.
        at_once: lines per task of a worker; 0 means :data:`CHUNK`.

    Raises:
        Exception: an error of the function, or of reading the lines, after the results of earlier lines.
        UserError: a worker was killed.
    """
    if workers == 1:
        yield from map(make(), lines)
        return
    # A forked worker imports nothing again.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, context, _start, (make, os.getpid())) as pool:
        try:
            yield from _results(pool, lines, at_once or CHUNK, 2 * workers)
        except BaseException as error:
            # A worker would otherwise finish its task, which may take minutes.
            for process in list((pool._processes or {}).values()):
                process.terminate()
            if isinstance(error, BrokenProcessPool):
                killed = "a worker process ended before its work was done: was it killed, or the memory full?"
                raise UserError(killed) from None
            raise


def _results(pool: ProcessPoolExecutor, items: Iterable[Any], at_once: int, most_waiting: int) -> Iterator[Any]:
    waiting: deque[Future[list[Any]]] = deque()
    groups = grouped(items, at_once)
    problem: Exception | None = None
    while problem is None:
        try:
            group = next(groups)
        except StopIteration:
            break
        except Exception as error:
            # Raised after the results of all lines before it.
            problem = error
        else:
            waiting.append(pool.submit(_work, group))
        if len(waiting) > most_waiting:
            yield from waiting.popleft().result()
    while waiting:
        yield from waiting.popleft().result()
    if problem is not None:
        raise problem


def _start(make: Callable[[], Callable[[Any], Any]], parent: int) -> None:
    """Set up a worker: it ignores Ctrl-C, which the parent handles, and ends with the parent."""
    global _make
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent, signal.SIGKILL)
    # Freeze inherited objects: CTranslate2 destructors would wait for threads that a fork lacks.
    gc.freeze()
    # Call it later: an error here would reach the parent as a broken pool.
    _make = cache(make)


def _work(items: list[Any]) -> list[Any]:
    return list(map(_make(), items))
