"""The steps of a pipeline as plain commands: run, or under a dry run printed as one could type them."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType

from fairseq_plugins.text.__main__ import run_step

GRACE_SECONDS = 2.0
"""How long a child may take to end by itself after Ctrl-C, which a terminal sends to both."""


class Commands:
    """Runs the commands of a pipeline.

    Args:
        dry_run: print each command, run none.
    """

    def __init__(self, *, dry_run: bool = False) -> None:
        self.dry_run = dry_run

    def text(self, *words: object) -> None:
        """``python -m fairseq_plugins.text STEP ...``, inside this process: no new interpreter for each step.

        Raises:
            UserError: the step failed.
        """
        if self.dry_run:
            self._print([sys.executable, "-m", "fairseq_plugins.text", *map(str, words)])
            return
        run_step([str(word) for word in words])
        # A child process that comes next would print before what is still in our buffer.
        sys.stdout.flush()

    def deep(self, *words: object, output: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
        """``fairseq-deep COMMAND ...``, in a process of its own; arguments and errors as for :meth:`run`."""
        self.run(sys.executable, "-m", "fairseq_plugins.cli", *words, output=output, environment=environment)

    def run(self, *words: object, output: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
        """Any command, which has said itself what is wrong where it fails.

        Args:
            words: the command and its arguments.
            output: a file for its standard output; by default it goes where ours goes.
            environment: variables to set beside ours.

        Raises:
            SystemExit: it failed; the code is the command's, or 128 + its signal as a shell counts.
        """
        command = [str(word) for word in words]
        if self.dry_run:
            self._print(command, output, environment)
            return
        with open(output, "wb") if output is not None else nullcontext() as stream:
            # close_fds: a lock that is inheritable (workspace.py) stays locked while the child lives.
            child = subprocess.Popen(command, stdout=stream, env={**os.environ, **(environment or {})}, close_fds=False)
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
    """The child's exit code; whatever ends us ends the child first."""
    try:
        return child.wait()
    except BaseException:
        # Ctrl-C at a terminal has reached the child as well; a signal that only we got has not.
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
        child.terminate()
        child.wait()
        raise


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, and say once that nothing is lost.

    Raises:
        KeyboardInterrupt: one of the two came.
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
