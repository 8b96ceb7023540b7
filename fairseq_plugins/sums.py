"""The checksums of binarised text, as ``sha256sum`` writes and checks them: what is used is what was prepared."""

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import checksum, write_whole
from fairseq_plugins.lines import read_lines

FILE = "sha256sums"
QUICK = ("dict.*", "*.idx")
"""Files checked at each reading of text: a ``.bin`` file may be large, and its size is compared with its index."""
BINARISED = "data-bin"
"""Binarised data in a prepared directory."""


def add_sums(directory: Path, files: Mapping[str, Path]) -> None:
    """Write the checksums of files, by their names as seen from ``directory``, next to those that are known there."""
    known = {**_sums_in(directory), **{name: checksum(path) for name, path in files.items()}}
    write_whole(directory / FILE, "".join(f"{known[name]}  {name}\n" for name in sorted(known)))


def require_sums(directory: Path, *patterns: str) -> None:
    """Compare the files whose names have one of these shell patterns; a UserError names one that is another.

    A directory without checksums passes. A file that is absent is missed by whoever reads it.
    """
    for name, expected in _sums_in(directory).items():
        path = directory / name
        if any(fnmatch(name, pattern) for pattern in patterns) and path.is_file() and checksum(path) != expected:
            sums = f"says {directory / FILE}, without whose line the change is accepted"
            raise UserError(f"{path}: damaged or changed since it was prepared, {sums}; prepare it again")


def _sums_in(directory: Path) -> dict[str, str]:
    path = directory / FILE
    return {line[66:]: line[:64] for line in (read_lines(path) if path.is_file() else ())}


def binarised(data: str) -> str:
    """Return ``data``, or the binarised data in it if ``data`` is a prepared directory."""
    inner = Path(data) / BINARISED
    return str(inner) if inner.is_dir() and not any(Path(data).glob("dict.*txt")) else data
