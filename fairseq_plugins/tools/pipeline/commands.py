"""Run the commands of a pipeline."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ParamSpec

from fairseq_plugins.process import end_children, start_child

Parameters = ParamSpec("Parameters")

COMMAND = "fairseq_plugins.tools.cli"
DEEP = (sys.executable, "-m", COMMAND)
"""The command ``fairseq-deep``."""
SAYS_HOW_TO_CONTINUE = "FAIRSEQ_DEEP_SAYS_HOW_TO_CONTINUE"
"""PID of the outermost command. Ctrl-C at a terminal reaches every process; only this one prints the notice."""


def step(function: Callable[Parameters, str | None], *files: Parameters.args, **options: Parameters.kwargs) -> None:
    """Call a step of :mod:`fairseq_plugins.tools.text`, which may raise a UserError, and print its line."""
    if line := function(*files, **options):
        # Flushed, or the next child process would print before it.
        print(line, flush=True)


def run(*words: object, environment: Mapping[str, str] | None = None, output: int | None = None) -> None:
    """Run any command, with more variables of the environment; end this process with its exit code if it fails.

    ``output`` is its standard output, as for :class:`subprocess.Popen`.
    """
    child = start_child([str(word) for word in words], env={**os.environ, **(environment or {})}, stdout=output)
    try:
        code = child.wait()
    finally:
        end_children([child])
    require_success(code)


def require_success(code: int) -> None:
    """End this process with a failed command's exit code, or 128 + its signal as in a shell."""
    if code:
        raise SystemExit(code if code > 0 else 128 - code)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, by a KeyboardInterrupt, and print that the same command continues.

    The commands that the block starts leave that line to this process.
    """
    # Python handles Ctrl-C by the same function.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    outermost = os.environ.setdefault(SAYS_HOW_TO_CONTINUE, str(os.getpid())) == str(os.getpid())
    try:
        yield
    except KeyboardInterrupt:
        if outermost:
            print("\ninterrupted; the same command continues where this one stopped", file=sys.stderr)
        raise
    finally:
        if outermost:
            os.environ.pop(SAYS_HOW_TO_CONTINUE, None)
        signal.signal(signal.SIGTERM, before)
