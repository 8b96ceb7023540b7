"""Exit of a command: one line if the user can fix the problem or a training has diverged, else a trace."""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Callable

from fairseq_plugins.errors import UserError, raised_in_worker, report
from fairseq_plugins.interrupts import INTERRUPTED, raise_again

READER_LEFT = 141
"""128 + SIGPIPE: the result of writing into ``| head`` after ``head`` has ended."""

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
"""Errors of the system if nothing more can be written."""

MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)


def exit_code(command: Callable[[], int | None]) -> int:
    """Run ``command`` and return the exit code; a ``SystemExit`` passes through.

    Raises:
        Exception: whatever ``command`` raises that is not a mistake of the user.
    """
    raise_again()
    try:
        try:
            return command() or 0
        finally:
            # Notice a closed pipe here rather than while the interpreter shuts down.
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        if not _stdout_is_broken():
            raise
        return READER_LEFT
    except Exception as error:
        mistake = users_mistake(error)
        if mistake is None:
            raise
        report(mistake)
        return mistake.exit_code


def users_mistake(error: Exception) -> UserError | None:
    """Convert ``error`` to a UserError if the user can fix it; None if it is our bug."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, MISSING) and error.strerror:
        return UserError(f"{error.strerror}: {error.filename}")
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return UserError(f"{error.strerror}: {error.filename or 'nothing more can be written'}")
    # fairseq raises "Dataset not found: ..." and "Model file not found: ..." with a message instead of a number.
    if isinstance(error, MISSING) or (type(error) is OSError and error.errno is None):
        return UserError(str(error))
    return _refused_by_command(error) or _raised_in_worker(error)


def _raised_in_worker(error: Exception) -> UserError | None:
    """Return the :class:`UserError` of a spawned worker."""
    if type(error).__name__ != "ProcessRaisedException":
        return None
    return raised_in_worker(str(error))


def _refused_by_command(error: Exception) -> UserError | None:
    """Return the message of an assertion in one of fairseq's commands, which check their options by assertions."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    stated = isinstance(error, AssertionError) and bool(str(error))
    return UserError(str(error)) if stated and module.startswith("fairseq_cli.") else None


def _stdout_is_broken() -> bool:
    """Return whether our own stdout is a closed pipe; if so, discard what is still unwritten."""
    output = sys.stdout.fileno()
    poll = select.poll()
    poll.register(output, 0)
    if not any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return True
