"""How a process of this package starts and ends, and how it ends those that it has started.

Ctrl-C while a command starts ends it at once and prints nothing: imports take seconds, and nothing is half made yet. A
KeyboardInterrupt is not enough there: C code and destructors that run during an import turn it into another error, or
swallow it. So this module is imported before all others, and its own imports are cheap.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subprocess import Popen
    from types import TracebackType

    from fairseq_plugins.errors import UserError

PACKAGE = "fairseq_plugins"
COMMANDS = ("tools.cli", "tools.text")
"""Modules to run with ``python -m``."""
INTERRUPTED = 130
"""128 + SIGINT, as in a shell."""
READER_LEFT = 141
"""128 + SIGPIPE: the result of writing into ``| head`` after ``head`` has ended."""
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
"""Errors of the system if nothing more can be written."""
MISSING = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError)
CHATTER = (
    r"\s*(hydra\.experimental|The version_base|In 'config'|'.+' is validated|The strict flag|"
    r"'pin_memory' argument|`torch\.cuda\.amp\.autocast|Support for mismatched)"
)
"""Beginnings of the warnings that Hydra and torch print in every command about fairseq's calls."""
GRACE_SECONDS = 2.0
"""Time for a child to end by itself after Ctrl-C, which a terminal sends to parent and child."""

_PR_SET_PDEATHSIG = 1


# --- the start ------------------------------------------------------------------------------------------------------


def is_command() -> bool:
    """Return whether this process is a command of this package, and not a program that imports it.

    ``sys.orig_argv`` is the interpreter's own command line. A worker spawned by a command was started differently; its
    ``sys.argv`` is a copy of the parent's and would not tell.
    """
    started_with = sys.orig_argv[1:]
    if started_with[:1] == ["-u"]:  # torchrun starts it so
        del started_with[0]
    commands = [["-m", f"{PACKAGE}.{module}"] for module in COMMANDS]
    if started_with == ["-m", PACKAGE] or started_with[:2] in commands:
        return True
    return bool(started_with) and os.path.splitext(os.path.basename(started_with[0]))[0] == "fairseq-deep"


def end_quietly() -> None:
    """Let Ctrl-C end this process at once and without a trace until :func:`raise_again`."""
    # A shell's background jobs ignore Ctrl-C; keep it so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_again() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt, as Python has it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def at_once() -> Iterator[None]:
    """In a command that has not begun its work, Ctrl-C ends it at once; not where others have started the process."""
    if COMMAND:
        end_quietly()
    try:
        yield
    finally:
        if COMMAND:
            raise_again()


@contextmanager
def importing() -> Iterator[None]:
    """For imports of fairseq and torch; a UserError if something cannot be imported."""
    try:
        yield
    except Exception as error:
        from traceback import walk_tb

        *_, (frame, _) = walk_tb(error.__traceback__)
        ours = str(frame.f_globals.get("__name__")).startswith(PACKAGE) and not isinstance(error, ImportError)
        # A package whose import has failed is not in sys.modules; if fairseq is there, the bug is ours.
        if ours or "fairseq" in sys.modules:
            raise
        from fairseq_plugins.errors import UserError

        message = f"an import has failed ({type(error).__name__}: {error}); docs/installation.md says what is needed"
        raise UserError(message) from error


def log_as_fairseq_does() -> None:
    """Set up logging before fairseq is imported, as each of its commands does; no effect if it is set up already.

    Warnings about fairseq's own calls, which no user can change, are not shown. Importing fairseq first would leave the
    root logger at DEBUG: one of its modules logs while it is imported. A UserError if LOGLEVEL is not a level of
    Python's logging.
    """
    import logging
    import warnings

    from fairseq_plugins.errors import UserError, unknown_name

    warnings.filterwarnings("ignore", CHATTER)
    level = os.environ.get("LOGLEVEL", "INFO").upper()
    if not isinstance(logging.getLevelName(level), int):
        raise UserError(unknown_name("LOGLEVEL", level, ("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG")))
    logging.basicConfig(
        format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        level=level,
        stream=sys.stdout,
    )
    # Every import logs a line about a package that only speech synthesis would use.
    for speech in ("text_to_speech", "frm_text_to_speech"):
        logging.getLogger(f"fairseq.tasks.{speech}").setLevel(logging.WARNING)


# --- parent and child -----------------------------------------------------------------------------------------------


def end_with(parent: int, by: int = signal.SIGTERM) -> None:
    """Let this process get a signal when its ``parent`` ends, or has ended, even by SIGKILL; only Linux can do this.

    An orphan would go on, and keep its directory locked.
    """
    import ctypes

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), by)


def start_child(command: Sequence[str], **settings: Any) -> Popen[bytes]:
    """``subprocess.Popen`` of a command that ends when this process does, and keeps the lock of its directory."""
    import ctypes  # noqa: F401  (not first in the copy of this process, whose threads may hold the import's lock)
    import subprocess

    parent = os.getpid()
    # A child that outlives a killed parent still works there, so it inherits the lock of workspace.py.
    return subprocess.Popen(command, close_fds=False, preexec_fn=lambda: end_with(parent), **settings)


def end_children(children: Collection[Popen[bytes]]) -> None:
    """End all children: Ctrl-C at a terminal has reached them, too; a signal to this process has not."""
    import subprocess
    import time

    until = time.monotonic() + GRACE_SECONDS
    for child in children:
        with suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, until - time.monotonic()))
        child.terminate()
    for child in children:
        child.wait()


# --- the end --------------------------------------------------------------------------------------------------------


def exit_code(command: Callable[[], int | None]) -> int:
    """Run ``command`` and return the exit code; a ``SystemExit``, and our own errors, pass through.

    A mistake of the user, or a training that has diverged, ends in one line; so does a result that cannot be written.
    """
    raise_again()
    _write_completely()
    try:
        try:
            return command() or 0
        finally:
            # Notice a closed pipe or a full disk here rather than while the interpreter shuts down.
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        if not _stdout_is_broken():
            raise
        _discard_output()
        return READER_LEFT
    except Exception as error:
        mistake = users_mistake(error)
        if mistake is None:
            raise
        from fairseq_plugins.errors import report

        report(mistake)
        _discard_output()
        return mistake.exit_code


def _write_completely() -> None:
    """Give standard output a buffer of a line if ``PYTHONUNBUFFERED`` has left it without one.

    Python ignores how much of a text an unbuffered file has taken: a disk that fills would cut results silently.
    """
    import io

    output = sys.stdout
    # Skip a caller's stream: its file may be closed before ours, and its number reused.
    if sys.stdout is sys.__stdout__ and isinstance(getattr(output, "buffer", None), io.RawIOBase):
        settings: dict[str, Any] = {"encoding": output.encoding, "errors": output.errors, "closefd": False}
        sys.stdout = open(output.fileno(), "w", buffering=1, **settings)


def users_mistake(error: BaseException) -> UserError | None:
    """Convert ``error`` to a UserError if the user can fix it; None if it is our bug."""
    from traceback import walk_tb

    from fairseq_plugins.errors import EXPLANATIONS, UserError, raised_in_worker

    if isinstance(error, UserError):
        return error
    if type(error).__name__ == "ProcessRaisedException":
        return raised_in_worker(str(error))
    for explain in EXPLANATIONS:
        if mistake := explain(error):
            return mistake
    if line := _of_the_system(error):
        return UserError(line)
    # fairseq's commands check their options by assertions; its other code names the option.
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__)]
    raised_by = modules[-1].partition(".")[0] if modules else ""
    checked = raised_by == "fairseq_cli" and isinstance(error, AssertionError) and bool(str(error))
    named = raised_by == "fairseq" and " --" in f" {error}"
    return UserError(" ".join(str(error).split())) if checked or named else None


def _of_the_system(error: BaseException) -> str:
    """Return the line for a file that is missing, has no room, or has a name that is not UTF-8; else nothing."""
    # Python has signs for the bytes of such a name, which nothing can print or write.
    if isinstance(error, UnicodeEncodeError) and "\udc80" <= error.object[error.start] <= "\udcff":
        around = error.object[max(0, error.start - 40) : error.end + 40]
        return f"a file's name is not UTF-8: ...{ascii(around)[1:-1]}..."
    if isinstance(error, OSError) and error.strerror and (isinstance(error, MISSING) or error.errno in NO_ROOM):
        return f"{error.strerror}: {error.filename or 'nothing more can be written'}"
    # fairseq raises "Dataset not found: ..." and "Model file not found: ..." with a message instead of a number.
    return str(error) if isinstance(error, MISSING) or (type(error) is OSError and error.errno is None) else ""


def install_hook() -> None:
    """Make a mistake of the user end any command with one line, and Ctrl-C without a trace.

    Also in stock ``fairseq-train``.
    """
    previous = sys.excepthook
    if getattr(previous, "handles_user_errors", False):
        return
    from traceback import walk_tb

    from fairseq_plugins.errors import UserError, report

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        # Only in a command of fairseq: the programs of others may have their own messages for a missing file.
        names = (str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(trace))
        in_command = any(name.startswith("fairseq_cli.") for name in names)
        if in_command and isinstance(value, KeyboardInterrupt):
            raise SystemExit(INTERRUPTED)
        mistake = users_mistake(value) if in_command and isinstance(value, Exception) else value
        if not isinstance(mistake, UserError):
            previous(kind, value, trace)
            return
        report(mistake)
        # The interpreter turns a SystemExit that leaves the hook into its exit code.
        raise SystemExit(mistake.exit_code)

    hook.handles_user_errors = True  # type: ignore[attr-defined]
    sys.excepthook = hook


def _stdout_is_broken() -> bool:
    """Return whether our own stdout is a closed pipe."""
    import select

    output = sys.stdout.fileno()
    poll = select.poll()
    poll.register(output, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _discard_output() -> None:
    """Discard output that cannot be written: the interpreter would try once more at its end, and print a trace."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


COMMAND = is_command()
if COMMAND:
    end_quietly()
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun may be killed while its rank still imports
        end_with(os.getppid())
