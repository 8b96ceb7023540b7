"""How a command ends: in one line where the user can mend it or a training has diverged, else with a trace."""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Callable
from types import TracebackType

from fairseq_plugins.errors import UserError, raised_in_worker, report

INTERRUPTED = 130
"""128 + SIGINT, as a shell counts."""

READER_LEFT = 141
"""128 + SIGPIPE: what a program gets that writes into ``| head`` after ``head`` has ended."""

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
"""What the system answers where nothing more can be written."""

MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)


def exit_code(command: Callable[[], int | None]) -> int:
    """Run ``command`` and return the code to exit with; a ``SystemExit`` of its own passes.

    Raises:
        Exception: whatever ``command`` raises that is no mistake of the user.
    """
    try:
        try:
            return command() or 0
        finally:
            # A reader that has left is noticed here rather than while the interpreter shuts down.
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


def end_quietly_when_interrupted() -> None:
    """Let Ctrl-C end this process without a trace at any time: imports take seconds, and precede :func:`exit_code`."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            # The interpreter turns a SystemExit that leaves the hook into its exit code.
            raise SystemExit(INTERRUPTED)
        previous(kind, value, trace)

    sys.excepthook = hook


def users_mistake(error: Exception) -> UserError | None:
    """``error`` as something to mend by the user, or None if it is a defect of the program."""
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
    """The :class:`UserError` of a spawned worker."""
    if type(error).__name__ != "ProcessRaisedException":
        return None
    return raised_in_worker(str(error))


def _refused_by_command(error: Exception) -> UserError | None:
    """The message of an assertion in one of fairseq's commands, which assert what they want of their options."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    stated = isinstance(error, AssertionError) and bool(str(error))
    return UserError(str(error)) if stated and module.startswith("fairseq_cli.") else None


def _stdout_is_broken() -> bool:
    """Whether it is our own reader that has left; if so, what is still unwritten goes nowhere."""
    output = sys.stdout.fileno()
    poll = select.poll()
    poll.register(output, 0)
    if not any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return True
