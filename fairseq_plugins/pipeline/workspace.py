"""A directory of results: one job at a time, one set of settings, every file whole or absent.

A job that was stopped anywhere (Ctrl-C, kill -9, a full disk) therefore continues when the same command is given again,
and makes the same bytes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import unified_diff
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import write_whole

SETTINGS = "settings"
"""The file that says what the results are made with: ``NAME=VALUE`` a line."""

LOCK = ".lock"


class Workspace:
    """A directory of results.

    Args:
        directory: made when it is claimed.
        dry_run: only print what would be made; touch nothing.
    """

    def __init__(self, directory: Path, *, dry_run: bool = False) -> None:
        self.directory = directory
        self.dry_run = dry_run

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Make the directory and keep other jobs out of it until the block and all its child processes have ended.

        Raises:
            UserError: another job is at work there, or the directory cannot be made or written.
        """
        if self.dry_run:
            yield
            return
        make_directory(self.directory)
        try:
            lock = os.open(self.directory / LOCK, os.O_WRONLY | os.O_CREAT, 0o666)
        except OSError:
            raise UserError(f"{self.directory}: cannot be written") from None
        try:
            self._lock(lock)
            yield
        finally:
            os.close(lock)

    def _lock(self, lock: int) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{self.directory}: another job is at work there; wait for it, or give another directory"
            ) from None
        # A child that outlives a killed parent still works here, so it keeps the lock.
        os.set_inheritable(lock, True)

    def remember(self, settings: Mapping[str, object] | Iterable[tuple[str, object]]) -> None:
        """Write down what the results are made with, so that nothing is ever reused that was made differently.

        Args:
            settings: values by name; pairs where a name occurs several times.

        Raises:
            UserError: the directory was made with other settings, or the file cannot be written.
        """
        if self.dry_run:
            return
        pairs = settings.items() if isinstance(settings, Mapping) else settings
        lines = [f"{name}={value}" for name, value in pairs]
        path = self.directory / SETTINGS
        if path.is_file():
            before = path.read_text(encoding="utf-8").splitlines()
            if changed := _differences(lines, before):
                raise UserError(
                    f"{self.directory} was made with other settings ({'; '.join(changed)}); give another directory, "
                    "or delete it"
                )
            return
        try:
            write_whole(path, "".join(f"{line}\n" for line in lines))
        except OSError:
            raise UserError(f"{path}: cannot be written; is the disk full?") from None

    def make(self, target: Path, make: Callable[[Path], None]) -> bool:
        """Make one file or directory unless it is there; return whether it was made now.

        Args:
            target: appears when it is whole.
            make: is given the name to write, ``TARGET.partial``. Under a dry run too: its commands then only print.

        Raises:
            UserError: ``make`` raised it or made nothing, or the directory above cannot be made.
        """
        partial = target.with_name(target.name + ".partial")
        if target.exists():
            say(f"{target}: there already, kept")
            return False
        if self.dry_run:
            say(f"# {target}")
            make(partial)
            return False
        say(f"{target}: making it")
        make_directory(target.parent)
        remove(partial)
        make(partial)
        if not partial.exists():
            raise UserError(f"{target}: not made, although no command failed")
        os.replace(partial, target)
        return True


def say(line: str) -> None:
    """Print a line before any child process prints."""
    print(line, flush=True)


def make_directory(directory: Path) -> None:
    """Make a directory and all above it.

    Raises:
        UserError: it cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{directory}: cannot be made: {error.strerror}") from None


def remove(path: Path) -> None:
    """Remove a file or a directory with all in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _differences(new: list[str], old: list[str]) -> list[str]:
    """The lines that differ: the new ones as they are, the old ones after ``was``."""
    lines = list(unified_diff(new, old, n=0, lineterm=""))[2:]
    return [f"was {line[1:]}" if line[0] == "+" else line[1:] for line in lines if line[0] != "@"]
