"""Apply one function to many lines on several cores, in order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from fairseq_plugins.errors import UserError
from fairseq_plugins.process import end_with

CHUNK = 2000
"""Lines per task of a worker."""
FORK, SPAWN = "fork", "spawn"
"""How Python starts a process."""
GUARD = "a script needs `if __name__ == '__main__':` around what starts several processes"

Transform = Callable[[str], str]
Given = TypeVar("Given")
Made = TypeVar("Made")

_make: Callable[[], Callable[[Any], Any]]


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
        Exception: whatever the function raises, or reading the lines does, after what was read before.
        UserError: a worker was killed.
    """
    if workers == 1:
        yield from map(make(), lines)
        return
    pool: Workers[Given, Made] = Workers(make, workers, FORK)
    try:
        yield from pool.map(lines, at_once or CHUNK)
    finally:
        pool.end()


class Workers(Generic[Given, Made]):
    """Processes that apply one function to many items, in order, until :meth:`end`.

    Args:
        make: returns the function; called once in each process. Has to be picklable unless ``start`` is ``fork``.
        count: number of processes.
        start: ``fork``, which imports nothing again, or ``spawn`` where this process may have run threads of OpenMP,
            which do not survive a fork.
    """

    def __init__(self, make: Callable[[], Callable[[Given], Made]], count: int, start: str) -> None:
        if start == SPAWN:
            _require_script()
        self._count, self._start = count, start
        context = multiprocessing.get_context(start)
        self._pool = ProcessPoolExecutor(count, context, _start, (make, os.getpid(), start))

    def map(self, items: Iterable[Given], at_once: int = 1) -> Iterator[Made]:
        """Yield the function of every item, as :func:`map_lines`; an error or an early end ends the processes."""
        try:
            yield from self._results(items, at_once)
        except BrokenProcessPool:
            self._kill()
            hint = f"; {GUARD}" if self._start == SPAWN else ""
            raise UserError(
                f"a worker process ended before its work was done: was it killed, or the memory full?{hint}"
            ) from None
        except BaseException:
            # A worker would otherwise finish its task, which may take minutes.
            self._kill()
            raise

    def _results(self, items: Iterable[Given], at_once: int) -> Iterator[Made]:
        waiting: deque[Future[list[Made]]] = deque()
        groups = grouped(items, at_once)
        problem: Exception | None = None
        while problem is None:
            try:
                group = next(groups)
            except StopIteration:
                break
            except Exception as error:
                # Raised after the results of what was read before it.
                problem = error
            else:
                waiting.append(self._pool.submit(_work, group))
            if len(waiting) > 2 * self._count:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
        if problem is not None:
            raise problem

    def end(self) -> None:
        """End the processes."""
        self._pool.shutdown()

    def _kill(self) -> None:
        for process in list((self._pool._processes or {}).values()):
            process.terminate()


def grouped(
    items: Iterable[Given], size: int, weight: Callable[[Given], int] = lambda item: 0, heaviest: int = 1
) -> Iterator[list[Given]]:
    """Put items together; those before an error come out before the error does.

    Args:
        items: in order.
        size: most items of a group.
        weight: returns the weight of an item.
        heaviest: a group of this weight is full, whatever its size.
    """
    group: list[Given] = []
    total = 0
    try:
        for item in items:
            group.append(item)
            total += weight(item)
            if len(group) == size or total >= heaviest:
                yield group
                group, total = [], 0
    except Exception:
        if group:
            yield group
        raise
    if group:
        yield group


def _require_script() -> None:
    """Check that a new process can import the script of this one.

    Raises:
        UserError: it is no file, or is imported by such a process right now.
    """
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is not None and getattr(main, "__spec__", None) is None and not Path(file).exists():
        raise UserError("several processes need a script that is a file: each of them imports it")
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UserError(GUARD)


def _end_with_parent() -> None:
    """End this process when its parent has ended, whichever thread of the parent started it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)


def _start(make: Callable[[], Callable[[Any], Any]], parent: int, start: str) -> None:
    """Set up a worker: it ignores Ctrl-C, which the parent handles, and ends with the parent."""
    global _make
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if start == FORK:
        end_with(parent, signal.SIGKILL)
    else:
        # end_with() would end it with the thread that started it.
        threading.Thread(target=_end_with_parent, daemon=True).start()
    # Not called yet: an error here would reach the parent as a broken pool.
    _make = cache(make)


def _work(items: list[Any]) -> list[Any]:
    return list(map(_make(), items))
