"""Checksums of files, and lists of them in the format of ``sha256sum``, which show changes since the preparation."""

import hashlib
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

from fairseq_plugins.errors import UserError, cause_of
from fairseq_plugins.files import write_whole

KINDS = {32: "md5", 40: "sha1", 64: "sha256"}
"""Kinds of checksums by the number of their digits."""
FILE = "sha256sums"
QUICK = ("dict.*", "*.idx")
"""Files checked at each reading of text: a ``.bin`` file may be large, and its size is compared with its index."""
BINARISED = "data-bin"
"""Binarised data in a prepared directory."""


def checksum(*paths: Path, digits: int = 64) -> str:
    """Return the checksum of the content of files, one after the other.

    Args:
        paths: files.
        digits: hexadecimal digits of the checksum, which say its kind in :data:`KINDS`.
    """
    digest = hashlib.new(KINDS[digits], usedforsecurity=False)
    for path in paths:
        with open(path, "rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def listed(path: Path) -> dict[str, str]:
    """Return the checksums of a list by the names of the files; a line that begins with # is a remark.

    Raises:
        UserError: the list cannot be read, is not UTF-8, or has another kind of line (with the line number).
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{path}: {cause_of(error)}") from None
    except UnicodeDecodeError as error:
        number, byte = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        raise UserError(f"{path}: line {number}: not UTF-8 (byte 0x{byte:02x})") from None
    digests = {}
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.rstrip().split(maxsplit=1)
        if words and not line.startswith("#"):
            if len(words) != 2 or len(words[0]) not in KINDS:
                raise UserError(f"{path}: line {number}: not a checksum and the name of a file")
            digests[words[1].removeprefix("*")] = words[0].lower()
    return digests


def add_sums(directory: Path, files: Mapping[str, Path]) -> None:
    """Write the checksums of files, by their names as seen from ``directory``, next to those that are known there."""
    known = {**_sums_in(directory), **{name: checksum(path) for name, path in files.items()}}
    write_whole(directory / FILE, "".join(f"{known[name]}  {name}\n" for name in sorted(known)))


def require_sums(directory: Path, *patterns: str) -> None:
    """Compare the files whose names have one of these shell patterns; a UserError names one that is another.

    A directory without checksums passes. The reader of a file reports its absence.
    """
    for name, expected in _sums_in(directory).items():
        path = directory / name
        if (
            any(fnmatch(name, pattern) for pattern in patterns)
            and path.is_file()
            and checksum(path, digits=len(expected)) != expected
        ):
            sums = f"says {directory / FILE}, without whose line the change is accepted"
            raise UserError(f"{path}: damaged or changed since it was prepared, {sums}; prepare it again")


def _sums_in(directory: Path) -> dict[str, str]:
    path = directory / FILE
    if path.is_file() and path.stat().st_size == 0:
        raise UserError(f"{path}: empty")
    return listed(path) if path.is_file() else {}


def binarised_in(data: str) -> str:
    """Return ``data``, or the binarised data in it if ``data`` is a prepared directory."""
    inner = Path(data) / BINARISED
    return str(inner) if inner.is_dir() and not any(Path(data).glob("dict.*txt")) else data
