"""The job's child processes: each in a group of its own, all ended together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

GRACE_SECONDS = 5.0
"""How long a child may take to end before it is killed."""


class CommandFailed(Exception):
    """A command of the job ended with an error; its output is in ``log``."""

    def __init__(self, what: str, code: int, log: Path) -> None:
        super().__init__(f"{what} ended with code {code}; see {log}")
        self.log = log


class Children:
    """Runs commands and can end all that are running, from another thread too."""

    def __init__(self, threads: int) -> None:
        self._environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, what: str, command: Sequence[str], output: Path, *, append: bool = False) -> None:
        """Run ``command`` with its output and errors in a file.

        Raises:
            CommandFailed: it ended with an error, or :meth:`stop` was called.
        """
        with open(output, "ab" if append else "wb") as stream:
            with self._lock:
                if self._stopped:
                    raise CommandFailed(what, -signal.SIGTERM, output)
                # A session of its own: Ctrl-C reaches the job alone, which then ends its children in order.
                child = subprocess.Popen(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    start_new_session=True,
                )
                self._running.add(child)
            code = child.wait()
        with self._lock:
            self._running.discard(child)
        if code != 0:
            raise CommandFailed(what, code, output)

    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stopped

    def stop(self) -> None:
        """End every running child and refuse new ones."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for child in running:
            _signal(child, signal.SIGTERM)
        for child in running:
            try:
                child.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                _signal(child, signal.SIGKILL)


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        pass


def fairseq_command(name: str) -> list[str]:
    """The start of one of fairseq's commands with this package's methods known to it."""
    return [sys.executable, "-m", "fairseq_plugins.cli", name]
