"""Ctrl-C while a command starts: it ends at once and prints nothing.

Imports take seconds, and nothing is half made yet. A KeyboardInterrupt is not enough there: C code and destructors that
run during an import turn it into another error, or swallow it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

INTERRUPTED = 130
"""128 + SIGINT, as in a shell."""
_installed = False


def end_quietly() -> None:
    """Let Ctrl-C end this process without a trace at any time, and at once until :func:`raise_again`."""
    global _installed
    previous = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            # The interpreter turns a SystemExit that leaves the hook into its exit code.
            raise SystemExit(INTERRUPTED)
        previous(kind, value, trace)

    sys.excepthook = hook
    _installed = True
    _end_at_once()


def raise_again() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt, as Python has it."""
    import signal

    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def at_once() -> Iterator[None]:
    """For imports after the start of a command: Ctrl-C ends it at once; not where others have started the process."""
    if _installed:
        _end_at_once()
    try:
        yield
    finally:
        raise_again()


def _end_at_once() -> None:
    # Not at the top: with what it imports it takes longer than all before it, and the hook is already there.
    import signal

    # Not where Ctrl-C is ignored, as for what a shell runs in the background.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _end(_signal: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
