"""A directory of results: one job at a time, one set of settings, every file whole or absent.

So the same command continues a job that was stopped anywhere (Ctrl-C, kill -9, a full disk), and writes the same bytes.
"""

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from fairseq_plugins.errors import UserError, visible
from fairseq_plugins.files import locked, to_disk, write_whole
from fairseq_plugins.lines import read_lines

SETTINGS = "settings"
"""The file with the settings of the results, one ``NAME=VALUE`` per line."""

NamedValues = Collection[tuple[str, object]]
"""Names and values; a name may occur several times."""


@dataclass(frozen=True)
class Workspace:
    """A directory of results, created when it is claimed; a dry run neither claims it nor remembers settings."""

    directory: Path
    dry_run: bool = False

    @contextmanager
    def claimed(self, settings: NamedValues | None = None, result: Path | None = None) -> Iterator[None]:
        """Create and lock the directory until the block ends; a UserError if it is in use.

        With ``settings``, they are recorded as :meth:`remember` does.
        """
        if self.dry_run:
            yield
            return
        make_directory(self.directory)
        in_use = f"{self.directory}: in use by another job; wait for it, or use another directory"
        # A child that outlives a killed parent still works here, so it keeps the lock.
        with locked(self.directory / ".lock", in_use, inherited=True):
            if settings is not None:
                self.remember(settings, result)
            yield

    def remember(self, settings: NamedValues, result: Path | None = None) -> None:
        """Record the settings of the results; a UserError if the directory was made with other settings.

        Settings without their ``result``, or a result without settings, are removed first.
        """
        make_directory(self.directory)
        path = self.directory / SETTINGS
        if result is not None and not (path.exists() and result.exists()):
            remove(path)
            remove(result)
        self.require(settings)
        if not path.is_file():
            text = "".join(f"{name}={value}\n" for name, value in settings)
            write_whole(path, text)

    def require(self, settings: NamedValues, only: Collection[str] | None = None) -> None:
        """Raise a UserError for a directory with other settings; accept one without recorded settings.

        ``only`` names the settings to compare; default: all.
        """
        path = self.directory / SETTINGS
        if not path.is_file():
            return
        before = [line for line in read_lines(path) if only is None or line.partition("=")[0] in only]
        now = [f"{name}={value}" for name, value in settings]
        differences = list(unified_diff(now, before, n=0, lineterm=""))[2:]
        changed = [f"was {line[1:]}" if line[0] == "+" else line[1:] for line in differences if line[0] != "@"]
        if changed:
            raise UserError(
                f"{self.directory} was made with other settings ({'; '.join(changed)}); use another directory, "
                "or delete it"
            )

    def make(self, target: Path, write: Callable[[Path], object]) -> None:
        """Create a file or directory unless it exists; ``write`` receives the path to write, ``TARGET.partial``."""
        exists = target.exists()
        say(f"{target}: exists already, kept" if exists else f"{target}: creating")
        if not exists:
            partial = target.with_name(target.name + ".partial")
            make_directory(target.parent)
            remove(partial)
            write(partial)
            to_disk(partial)
            os.replace(partial, target)


def settings_in(directory: Path) -> dict[str, str]:
    """The values of a directory's file of settings by their names; empty if there is none."""
    path = directory / SETTINGS
    lines = read_lines(path) if path.is_file() else ()
    return {name: value for name, equals, value in (line.partition("=") for line in lines) if equals}


def say(line: str) -> None:
    """Print a line before any child process prints."""
    print(visible(line), flush=True)


def make_directory(directory: Path) -> None:
    """Create a directory and its parents; a UserError if it cannot be created."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{directory}: cannot be created: {error.strerror}") from None


def remove(path: Path) -> None:
    """Remove a file or a directory with its content, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
