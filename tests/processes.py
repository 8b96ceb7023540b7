"""Commands and ranks without a new Python each: importing torch and fairseq takes longer than the tiny trainings."""

import functools
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from fairseq_plugins.tools.cli import main as cli
from tests import toy

LONGEST = 60.0
"""Seconds in which a process has to end."""


class Killed(BaseException):
    """A stand-in for SIGKILL: nothing handles it."""


class Ended(NamedTuple):
    """Exit code, standard error and output of a command and of the ranks that it started."""

    code: int
    errors: str
    output: str

    @property
    def error(self) -> str:
        """The error message; fails unless it is one line without a traceback."""
        assert "Traceback" not in self.errors + self.output
        (line,) = [line for line in self.errors.splitlines() if line.startswith("error: ")]
        return line


Command = Callable[..., Ended]
"""``fairseq-deep`` with arguments."""


@contextmanager
def full_disk_after(size: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes, as on a disk that is full then."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def fork_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the ranks of a training be forks of this process, in the state before any training."""
    toy.forget_earlier_trainings()
    # With a GPU autograd has threads, which are lost in a copy.
    if not torch.cuda.is_available():
        forked = functools.partial(torch.multiprocessing.start_processes, start_method="fork")
        monkeypatch.setattr(torch.multiprocessing, "spawn", forked)


def in_this_process(monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> Command:
    """The command as a function; ``capture`` has to be ``capfd``, which hears the ranks, too."""

    def run(*words: str) -> Ended:
        fork_ranks(monkeypatch)
        capture.readouterr()
        code = cli.main(list(words))
        printed = capture.readouterr()
        return Ended(code, printed.err, printed.out)

    return run


def python(*words: object, cwd: Path | None = None, **environment: str) -> Ended:
    """A new interpreter in a directory, by default this one; ``environment`` is what differs from this process's."""
    command = [sys.executable, *map(str, words)]
    there = {**os.environ, **environment}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=there, timeout=600, check=False)
    return Ended(ended.returncode, ended.stderr, ended.stdout)


def ends(process: int) -> bool:
    """Whether a process that is no child of this one ends in time; it may stay a zombie where nobody waits for it."""
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        try:
            stat = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return True
        if stat.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    os.kill(process, signal.SIGKILL)
    return False
