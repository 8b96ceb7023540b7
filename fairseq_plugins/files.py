"""Files that are never seen half-written nor written over their own sources."""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fairseq_plugins.errors import UserError, cause_of

STREAM = re.compile("/dev/(stdout|stderr|fd/.*)|/proc/[^/]+/fd/.*")
"""Names of open files."""


def require_no_input(output: Path, inputs: Iterable[Path]) -> None:
    """Raise a UserError if a result is one of its sources, or contains one, under any name or link."""
    for path in inputs:
        if output.resolve() == path.resolve() or (output.exists() and path.exists() and output.samefile(path)):
            other_name = "" if output == path else f" ({path})"
            raise UserError(f"{output}: the output is also an input{other_name}; choose another name")
        if path.resolve().is_relative_to(output.resolve()):
            raise UserError(f"{output}: the output contains the input {path}; choose another name")


@contextmanager
def locked(path: Path, in_use: str = "", inherited: bool = False) -> Iterator[None]:
    """Hold a lock that one process of a machine can have; nothing is locked on a file system without locks.

    Args:
        path: a directory, or a file, which is created.
        in_use: the message if another process holds it; without it, this one waits.
        inherited: whether the children of this process keep the lock if this one is killed inside of the block.

    Raises:
        UserError: ``in_use``, or the file cannot be created.
    """
    try:
        lock = os.open(path, os.O_RDONLY) if path.is_dir() else no_link(path, os.O_WRONLY | os.O_CREAT)
    except OSError as error:
        raise UserError(f"{path.parent}: cannot be written: {cause_of(error)}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (fcntl.LOCK_NB if in_use else 0))
        except BlockingIOError:
            raise UserError(in_use) from None
        except OSError:
            pass
        os.set_inheritable(lock, inherited)
        yield
    finally:
        # Processes that have inherited the file, such as data loaders of a training that was stopped, may live on.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def no_link(path: str | Path, flags: int) -> int:
    """An ``opener`` of :func:`open` for names of our own; a FileExistsError where a directory of others has a link."""
    if os.path.islink(path):
        raise FileExistsError(errno.EEXIST, "a link, through which nothing is written; remove it", str(path))
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


@contextmanager
def whole_file(path: Path, follow: bool = True) -> Iterator[Path]:
    """Yield a new, empty file to write to, renamed to ``path`` if the block succeeds; otherwise nothing changes.

    A device or pipe, such as ``/dev/null``, is written itself: renaming would put a file in its place. A link stays if
    ``follow``: its target is written, for names that the user has given.
    """
    if not path.name:
        raise UserError(f"{path}: a directory; give the name of a file")
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    if STREAM.fullmatch(str(path)) and path.exists():
        raise UserError(f"{path}: leads to the file {path.resolve()}, which would be replaced; give the name of a file")
    path = path.resolve() if follow else path
    partial = path.with_name(path.name + ".partial")
    try:
        partial.unlink(missing_ok=True)  # a link, or left by a process that was killed
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL, 0o666))
        yield partial
        to_disk(partial)
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


@contextmanager
def whole_directory(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """Yield a new directory to fill, renamed to ``path`` if the block succeeds; otherwise nothing changes.

    Raises:
        OSError: it cannot be made, or ``path`` holds something and ``overwrite`` is false.
    """
    path = path.resolve()  # "." has no name, and a link is not its target
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        to_disk(partial)
        if overwrite and path.is_dir():
            # A name of its own: a process that was killed here has left one behind.
            before = tempfile.mkdtemp(".before", f"{path.name}.", path.parent)
            os.replace(path, before)
            os.replace(partial, path)
            shutil.rmtree(before)
        else:
            os.replace(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def to_disk(path: Path) -> None:
    """Wait until the disk has a file, or those of a directory: a new name must not outlive a power cut without them."""
    for file in path.rglob("*") if path.is_dir() else (path,):
        if file.is_file():
            with open(file, "rb") as stream:
                os.fsync(stream.fileno())


def write_whole(path: Path, text: str, follow: bool = False) -> None:
    """Write a text file atomically, or raise a UserError; a link is replaced by it, unless ``follow``."""
    try:
        with whole_file(path, follow) as partial:
            partial.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {cause_of(error)}") from error
