"""Files that are never seen half-written, and checksums of files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name to write to, renamed to ``path`` if the block succeeds; otherwise nothing changes."""
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
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
    path = path.resolve()  # "." has no name, and a link is not what it leads to
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        if overwrite and path.is_dir():
            before = path.with_name(path.name + ".before")
            os.replace(path, before)
            os.replace(partial, path)
            shutil.rmtree(before)
        else:
            os.replace(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_whole(path: Path, text: str) -> None:
    """Write a text file atomically.

    Raises:
        OSError: it cannot be written.
    """
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def checksum(*paths: Path, kind: str = "sha256") -> str:
    """Checksum of the content of ``paths``, one after the other, in hexadecimal digits; one block is in memory.

    Args:
        paths: files.
        kind: hashlib's name of the checksum.
    """
    digest = hashlib.new(kind, usedforsecurity=False)
    for path in paths:
        with open(path, "rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
