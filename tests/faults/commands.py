"""Commands as from a shell, each a tree of processes that can be hit: forks of this process, which has imported torch.

A new interpreter would spend most of its time with imports, on a machine of two cores five times as long as the tiny
training. So every ``python -m MODULE`` below a command is a copy of this process that goes on with that module: its
process tree, signals, open files and locks are those of new interpreters.
"""

import contextlib
import ctypes
import importlib
import logging
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import DEVNULL, STDOUT
from typing import Any

from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

from fairseq_plugins import process

PR_SET_CHILD_SUBREAPER = 36
GRACE = 15.0
"""Seconds in which every process of a command has to end after its first one has."""


def import_what_is_slow() -> None:
    """Import what the commands import only when they need it; and what torch imports with its first optimizer."""
    for module in ("fairseq_cli.hydra_train", "torch._dynamo", "torch.distributed.run", "sacrebleu", "sacremoses"):
        importlib.import_module(module)
    importlib.import_module("fairseq_plugins").register()


class ForkingPopen(subprocess.Popen):  # type: ignore[type-arg]
    """``Popen``, whose Python programs are copies of this process."""

    def __init__(self, args: Any, **settings: Any) -> None:
        words = [] if isinstance(args, str) else [str(word) for word in args]
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        if "-m" in words:
            before, environment = settings.get("preexec_fn"), dict(settings.get("env") or os.environ)
            for word in words[: words.index("-m")]:  # env NAME=VALUE python -m ...
                name, equals, value = word.partition("=")
                environment.update({name: value} if equals else {})
            settings["preexec_fn"] = lambda: _become(words, environment, before)
            # A copy that has not forgotten its past yet would answer a signal as this process does.
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            super().__init__(args, **settings)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _become(words: Sequence[str], environment: dict[str, str], before: Any) -> None:
    """Be the program ``words`` until it ends: called in a new process instead of ``exec``."""
    code = 1
    try:
        if before is not None:
            before()
        _forget(environment)
        at = words.index("-m")
        sys.argv = [words[at], *words[at + 2 :]]
        sys.orig_argv[:] = [sys.executable, *(word for word in words[:at] if word.startswith("-")), *words[at:]]
        process.COMMAND = process.is_command()
        if process.COMMAND and "TORCHELASTIC_RUN_ID" in os.environ:  # its import does so in a new interpreter
            process.end_with(os.getppid())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
        runpy.run_module(words[at + 1], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else bool(ended.code)
    except BaseException:
        try:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)


def _forget(environment: dict[str, str]) -> None:
    """Let go of what ``exec`` would: files that are not inherited, the environment, handlers, earlier trainings."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            # It stays open: objects of this process still hold its number.
            if fd > 2 and not os.get_inheritable(fd):
                os.dup2(nothing, fd, inheritable=False)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    logging.getLogger().handlers.clear()
    process.log_as_fairseq_does()
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python does so at its start
        signal.signal(number, signal.SIG_IGN)
    from hydra.core.global_hydra import GlobalHydra
    from tqdm import tqdm

    from tests import toy

    process.end_quietly()
    # Its own is shared with all copies of this process, and a killed one may hold it for ever.
    tqdm.set_lock(threading.RLock())
    GlobalHydra.instance().clear()
    toy.forget_earlier_trainings()
    subprocess.Popen = subprocess_handler.Popen = ForkingPopen  # type: ignore[misc]


class Job:
    """A command that runs, with its arguments and a file for what it prints."""

    def __init__(self, words: Sequence[str], said: Path) -> None:
        _adopt_orphans(True)
        with open(said, "wb") as output:
            # A terminal, which is on no disk.
            self._screen = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=output, start_new_session=True)
        self._before = set(_descendants(os.getpid()))
        self._said = said
        command = [sys.executable, "-m", "fairseq_plugins.tools.cli", *words]
        self.process = ForkingPopen(
            command, stdin=DEVNULL, stdout=self._screen.stdin, stderr=STDOUT, start_new_session=True
        )
        assert self._screen.stdin is not None
        self._screen.stdin.close()

    def processes(self) -> list[int]:
        """All processes of the command, parents first."""
        return [pid for pid in _descendants(os.getpid()) if pid not in self._before]

    def wait(self, seconds: float) -> int | None:
        """Its exit code, or None if it still runs after these seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return int(self.process.wait(seconds))
        return None

    def left_behind(self) -> list[str]:
        """Wait for all its processes to end; those that do not are named, and killed."""
        until = time.monotonic() + GRACE
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.02)
            self._reap(left, os.WNOHANG)
        names = [f"process {pid} ({_state(pid)[0]})" for pid in left]
        self.send(signal.SIGKILL, left)
        self._reap(left, 0)
        self._screen.wait()
        _adopt_orphans(False)
        return names

    def said(self) -> str:
        """Its output so far; all of it when no process is left behind."""
        return self._said.read_text(encoding="utf-8", errors="replace")

    def _reap(self, pids: Sequence[int], options: int) -> None:
        self.process.wait() if not options else self.process.poll()
        for pid in pids:
            with contextlib.suppress(OSError):
                if pid != self.process.pid:  # whose exit code is asked for later
                    os.waitpid(pid, options)

    def send(self, number: int, pids: Sequence[int] | None = None) -> None:
        """Send a signal, by default to all its processes; some may have ended by now."""
        for pid in self.processes() if pids is None else pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        """Stop all its processes. One that gets the signal inside of a fork stops only after it has made its child."""
        stopped: list[int] | None = None
        while (processes := self.processes()) != stopped:
            self.send(signal.SIGSTOP, processes)
            ended_or_stopped = all(_state(pid)[0] in "TXZ" for pid in processes)
            stopped = processes if ended_or_stopped else None


def _adopt_orphans(wanted: bool) -> None:
    """Whether processes below this one whose parent has ended become its children."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def _state(pid: int) -> tuple[str, int]:
    """State and parent of a process; ``X`` if it has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "X", 0
    return fields[0], int(fields[1])


def _descendants(pid: int) -> Iterator[int]:
    """The processes below ``pid``, parents first, without those that have ended and wait for their parent."""
    children: dict[int, list[int]] = {}
    for each in map(int, filter(str.isdigit, os.listdir("/proc"))):
        state, parent = _state(each)
        if state not in "XZ" or parent == os.getpid():
            children.setdefault(parent, []).append(each)
    rows = children.get(pid, [])
    while rows:
        yield from rows
        rows = [child for parent in rows for child in children.get(parent, [])]
