"""What can happen to a command that runs: one function for each fault."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.faults.commands import Job
from tests.faults.subjects import LAST, Subject, files_of

LONGEST_START = 60.0
"""Seconds until a training has written its first checkpoint."""


@dataclass(frozen=True)
class Running:
    """A command that is about to be hit.

    Args:
        subject: what runs.
        job: its processes.
        inputs: what it reads.
        place: what it makes.
        again: runs the same command to its end; its exit code and what it said.
    """

    subject: Subject
    job: Job
    inputs: Path
    place: Path
    again: Callable[[], tuple[int, str]]


Heal = Callable[[], None]
"""Undoes what does not go away by itself, when the command has had its time with it."""


def nothing() -> None:
    """There is nothing to undo."""


def kill_everything(running: Running, chance: random.Random) -> Heal:
    """SIGKILL to all processes at once, as when the machine loses its power or a job its memory."""
    running.job.stop()  # otherwise a parent would notice the end of its child
    running.job.send(signal.SIGKILL)
    return nothing


def kill_one(running: Running, chance: random.Random) -> Heal:
    """SIGKILL to one process, as of a system that is short of memory."""
    if processes := running.job.processes():
        running.job.send(signal.SIGKILL, [chance.choice(processes)])
    return nothing


def terminate(running: Running, chance: random.Random) -> Heal:
    """SIGTERM to the command, as of a scheduler."""
    running.job.send(signal.SIGTERM, [running.job.process.pid])
    return nothing


def interrupt(running: Running, chance: random.Random) -> Heal:
    """Ctrl-C: SIGINT to the processes of the terminal."""
    try:
        os.killpg(running.job.process.pid, signal.SIGINT)
    except ProcessLookupError:
        pass
    return nothing


def full_disk(running: Running, chance: random.Random) -> Heal:
    """No file can grow above a size, which is that of a file of the result, or less."""
    sizes = [0, *(path.stat().st_size for path in files_of(running.place).values())]
    limit = int(chance.choice(sizes) * chance.random())
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    for pid in running.job.processes():
        try:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, hard))
        except ProcessLookupError:
            continue
    return nothing


def _writable(directory: Path, writable: bool) -> None:
    # To root every directory is writable by its mode.
    if os.geteuid() == 0:
        subprocess.run(["chattr", "-i" if writable else "+i", str(directory)], check=True)
    else:
        directory.chmod(0o755 if writable else 0o555)


def read_only_can_be_made(directory: Path) -> bool:
    """Whether this system, user and file system let a directory be made read-only."""
    probe = directory / "probe"
    probe.mkdir()
    try:
        _writable(probe, False)
        (probe / "file").touch()
    except PermissionError:
        return True
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        if shutil.which("chattr"):
            _writable(probe, True)
        shutil.rmtree(probe)
    return False


def read_only(running: Running, chance: random.Random) -> Heal:
    """No name in the directories of the result can be made, changed or removed."""
    place = running.place
    directories = [path for path in (place, place / "checkpoints", place / "work", place / "text") if path.is_dir()]
    for directory in directories:
        _writable(directory, False)

    def heal() -> None:
        for directory in directories:
            _writable(directory, True)

    return heal


def vanished(running: Running, chance: random.Random) -> Heal:
    """A disk is unmounted for a while: data, result or checkpoints are empty, and come back as they were."""
    candidates = [running.inputs / "prepared" / "data-bin", running.place, running.place / "checkpoints"]
    there = chance.choice([path for path in candidates if path.is_dir()] or [running.inputs])
    away = running.inputs.parent / "unmounted"
    try:
        os.rename(there, away)
        there.mkdir(exist_ok=True)
    except OSError:  # it was being replaced
        return nothing

    def heal() -> None:
        running.job.send(signal.SIGKILL)  # what it writes into the directory that is not there is lost
        running.job.left_behind()
        shutil.rmtree(there, ignore_errors=True)
        os.rename(away, there)
        if running.job.process.poll() == 0:
            running.again()  # it has ended elsewhere

    return heal


def changed_data(running: Running, chance: random.Random) -> Heal:
    """One byte of an input is another: for a while, or until the command has refused to go on with it."""
    trains = bool(running.subject.needs)
    data = running.inputs / ("prepared/data-bin" if trains else "text")
    begun = _is_new(running.place / LAST if trains else running.place / "settings")
    until = time.monotonic() + LONGEST_START
    # Until then a command may take what it finds.
    while not begun() and running.job.process.poll() is None and time.monotonic() < until:
        time.sleep(0.001)
    if not begun():
        return nothing
    path = chance.choice(sorted(data.glob("train*.bin" if trains else "t*")))
    content = path.read_bytes()
    at = chance.randrange(len(content) - 1)
    _replace(path, content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    try:
        if chance.random() < 0.5:
            time.sleep(chance.uniform(0.0, 0.3))
        else:
            running.job.send(signal.SIGKILL)
            running.job.left_behind()
            code, said = running.again()
            if code != 2 or "Traceback" in said:
                raise AssertionError(f"exit code {code} with other data in {path.name}: {said[-500:]}")
    finally:
        _replace(path, content)
    return nothing


def _is_new(path: Path) -> Callable[[], bool]:
    """Whether a file is another than now."""

    def number() -> int:
        try:
            return path.stat().st_ino
        except OSError:
            return 0

    before = number()
    return lambda: number() not in (0, before) or (before != 0 and path.name == "settings")


def _replace(path: Path, content: bytes) -> None:
    new = path.parent.parent / "new"
    new.write_bytes(content)
    os.replace(new, path)


@dataclass(frozen=True)
class Fault:
    """A fault.

    Args:
        hit: does it.
        codes: exit codes of a command that was hit and has ended; 0 where it was through before.
        patience: seconds that it may go on before what was done is undone.
    """

    hit: Callable[[Running, random.Random], Heal]
    codes: tuple[int, ...]
    patience: float = 30.0


KILLED = -signal.SIGKILL
FAULTS: Mapping[str, Fault] = {
    "kill": Fault(kill_everything, (0, KILLED)),
    # A command ends with 137 where a process that it waits for was killed.
    "kill one": Fault(kill_one, (0, 1, 2, KILLED, 137, 143)),
    "terminate": Fault(terminate, (0, 130, -signal.SIGTERM)),
    "interrupt": Fault(interrupt, (0, 130)),
    "full disk": Fault(full_disk, (0, 2), patience=20.0),
    "read-only disk": Fault(read_only, (0, 2), patience=5.0),
    "vanished directory": Fault(vanished, (0, 2, KILLED), patience=3.0),
    "changed data": Fault(changed_data, (0, 2, KILLED), patience=0.2),
}
