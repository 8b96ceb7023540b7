"""Run the commands of a pipeline; a dry run prints them as a user would type them."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import FrameType

from fairseq_plugins.orphans import end_with
from fairseq_plugins.text.__main__ import run_step

GRACE_SECONDS = 2.0
"""Time for a child to end by itself after Ctrl-C, which a terminal sends to parent and child."""


class Commands:
    """Runs the commands of a pipeline.

    Args:
        dry_run: print each command, run none.
    """

    def __init__(self, *, dry_run: bool = False) -> None:
        self.dry_run = dry_run

    def text(self, *words: object) -> None:
        """Run ``python -m fairseq_plugins.text STEP ...`` inside this process, without a new interpreter.

        Raises:
            UserError: the step failed.
        """
        if self.dry_run:
            self._print([sys.executable, "-m", "fairseq_plugins.text", *map(str, words)])
            return
        run_step([str(word) for word in words])
        # Otherwise the next child process prints before our buffered lines.
        sys.stdout.flush()

    def deep(self, *words: object, output: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
        """Run ``fairseq-deep COMMAND ...`` in its own process; arguments and errors as for :meth:`run`."""
        self.run(sys.executable, "-m", "fairseq_plugins.cli", *words, output=output, environment=environment)

    def run(self, *words: object, output: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
        """Run any command. A command that fails prints its own error message.

        Args:
            words: the command and its arguments.
            output: a file for its standard output; default: ours.
            environment: variables to add to ours.

        Raises:
            SystemExit: it failed, with the command's exit code, or 128 + its signal as in a shell.
        """
        command = [str(word) for word in words]
        if self.dry_run:
            self._print(command, output, environment)
            return
        with open(output, "wb") if output is not None else nullcontext() as stream:
            # close_fds=False: the child inherits the lock of workspace.py and keeps it.
            child = subprocess.Popen(
                command,
                stdout=stream,
                env={**os.environ, **(environment or {})},
                close_fds=False,
                preexec_fn=partial(end_with, os.getpid()),
            )
            code = _ended(child)
        if code:
            raise SystemExit(code if code > 0 else 128 - code)

    def _print(
        self, command: list[str], output: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        settings = [f"{name}={shlex.quote(value)}" for name, value in (environment or {}).items()]
        redirection = [] if output is None else [">", shlex.quote(str(output))]
        print(" ".join([*settings, shlex.join(command), *redirection]), flush=True)


def _ended(child: subprocess.Popen[bytes]) -> int:
    """Wait for the child and return its exit code. If we are ended, end the child first."""
    try:
        return child.wait()
    except BaseException:
        # Ctrl-C at a terminal reaches the child, too; a signal to this process does not.
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
        child.terminate()
        child.wait()
        raise


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, and print once that the same command continues.

    Raises:
        KeyboardInterrupt: at Ctrl-C or SIGTERM.
    """
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except KeyboardInterrupt:
        print("\ninterrupted; the same command continues where this one stopped", file=sys.stderr)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
