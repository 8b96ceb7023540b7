"""Check archives, and unpack them.

A mirror that has lost a file often answers with an error page, which is then stored under the archive's name. A broken
connection leaves a truncated archive. Reading an archive to its end finds both.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import checksum

TAR = (".tar", ".tgz", ".tar.gz", ".tbz2", ".tar.bz2", ".txz", ".tar.xz")
ZIP = (".zip",)
COMPRESSED = (".gz", ".bz2", ".xz")

_OPENERS: Mapping[bytes, Callable[[Path], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
"""By the first bytes, not by the name, because browsers and proxies may decompress a ``.tgz``."""
_WEB_PAGE = (b"<!doctype html", b"<html", b"<head", b"<?xml")
_PIECE = 1 << 20
_KINDS = {32: "md5", 40: "sha1", 64: "sha256"}
"""Kinds of checksums by the number of their digits."""
_CHECKSUMS = Path(__file__).with_name("checksums.txt")


def check_archive(path: Path, name: str | None = None) -> int:
    """Read an archive to its end and return its number of files; 1 for a file that is not an archive.

    Args:
        path: the file.
        name: a name with the expected suffix, if the suffix of ``path`` is different.

    Raises:
        UserError: it is empty, a web page, truncated, damaged, or of another kind than ``name``.
    """
    return len(_read(path, name or path.name, lambda _: None))


def unpack(archive: Path, directory: Path, only: Sequence[str] = (), sums: Mapping[str, str] | None = None) -> int:
    """Unpack ``archive`` as ``directory``, which appears when it is complete; return the number of files.

    Nothing is written outside ``directory``, whatever paths and links the archive contains.

    Args:
        archive: a tar archive, compressed or not, or a zip archive.
        directory: must not exist yet.
        only: patterns such as ``*.de-en.*``; members whose path matches none are skipped.
        sums: MD5, SHA-1 or SHA-256 checksum by base name; a member with one of these names must have it.

    Raises:
        UserError: as for :func:`check_archive`; a pattern matches nothing, a checksum is wrong, a path leads outside.
        OSError: ``directory`` cannot be written.
    """
    if not archive.name.endswith(TAR + ZIP):
        raise UserError(f"{archive}: not the name of an archive; legal endings: {' '.join(TAR + ZIP)}")
    if directory.exists():
        raise UserError(f"{directory}: exists already")
    if not hasattr(tarfile, "data_filter"):
        raise UserError("this Python cannot unpack archives safely; 3.10.12, 3.11.4 and all later releases can")
    unmatched = set(only)

    def place_of(name: str) -> Path | None:
        matched = {pattern for pattern in only if fnmatchcase(name, pattern)}
        unmatched.difference_update(matched)
        return partial if matched or not only else None

    partial = directory.with_name(directory.name + ".unpacking")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        names = _read(archive, archive.name, place_of)
        if unmatched:
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise UserError(f"{archive}: nothing matches {' '.join(sorted(unmatched))}; it contains {shown}")
        files = [path for path in sorted(partial.rglob("*")) if path.is_file()]
        for path in files:
            known = (sums or {}).get(path.name)
            if known is not None and known != (actual := checksum_like(known, path)):
                raise UserError(f"{archive}: {path.name}: wrong checksum: {known} expected, {actual} found")
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return len(files)


def unpack_known(archive: Path, directory: Path, *, only: Sequence[str] = ()) -> str:
    """Unpack an archive into a directory; files with a known checksum must have it.

    Options:
        only: a pattern of paths in the archive; members that match none are skipped
    """
    return f"{archive.name}: {unpack(archive, directory, only, known_checksums()):,} files unpacked"


def known_checksums(path: Path | None = None) -> dict[str, str]:
    """The checksums of a file in ``sha256sum``'s format, by name; lines that begin with ``#`` are comments.

    Args:
        path: default: the file in the environment's ``CHECKSUMS``, or else the one of this package.

    Raises:
        UserError: the file cannot be read.
    """
    path = path or Path(os.environ.get("CHECKSUMS") or _CHECKSUMS)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{path}: cannot be read; CHECKSUMS names the file of known checksums") from None
    lines = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return {words[1]: words[0] for words in lines if len(words) == 2 and len(words[0]) in _KINDS}


def checksum_like(known: str, path: Path) -> str:
    """The checksum of a file, in hexadecimal, of the same kind as ``known`` (by its length)."""
    return checksum(path, kind=_KINDS[len(known)])


def _read(path: Path, name: str, place_of: Callable[[str], Path | None]) -> list[str]:
    """Read the whole file, and return the paths of all files in it.

    Args:
        path: the archive.
        name: its expected name.
        place_of: where the member of a path is unpacked; None to skip it.
    """
    if path.stat().st_size == 0:
        raise UserError(f"{path}: empty")
    with _damage_reported(path, name):
        if name.endswith(ZIP):
            names = _read_zip(path, place_of)
        elif name.endswith(TAR):
            names = _read_tar(path, place_of)
        else:
            names = [name]
            if name.endswith(COMPRESSED) and _opener(path) is None:
                raise tarfile.ReadError("not compressed")
            if not name.endswith((".html", ".xml", ".sgm")) and _is_web_page(path):
                raise tarfile.ReadError("a web page")
            with (_opener(path) or _open)(path) as stream:
                _read_on(stream)
    if not names:
        raise UserError(f"{path}: contains no file")
    return names


def _read_tar(path: Path, place_of: Callable[[str], Path | None]) -> list[str]:
    opener = _opener(path)
    names = []
    with (opener or _open)(path) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
        for member in archive:
            directory = place_of(member.name)
            if directory is not None:
                archive.extract(member, directory, filter="data")
            if member.isfile():
                names.append(member.name)
        if opener is None:
            # tarfile takes an unreadable header for the end, and there is no checksum that would detect it.
            stream.seek(archive.offset)
            if stream.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
                raise tarfile.ReadError("its end is missing")
        _read_on(stream)
    return names


def _read_zip(path: Path, place_of: Callable[[str], Path | None]) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        for member in members:
            directory = place_of(member.filename)
            if directory is not None:
                archive.extract(member, directory)
            else:
                with archive.open(member) as stream:
                    _read_on(stream)
    return [member.filename for member in members]


def _opener(path: Path) -> Callable[[Path], Any] | None:
    """What decompresses a file; None if it is not compressed."""
    with open(path, "rb") as stream:
        start = stream.read(8)
    return next((opener for magic, opener in _OPENERS.items() if start.startswith(magic)), None)


def _open(path: Path) -> IO[bytes]:
    return open(path, "rb")


def _read_on(stream: IO[bytes]) -> None:
    """Read to the end, where gzip, bzip2 and xz check."""
    while stream.read(_PIECE):
        pass


@contextmanager
def _damage_reported(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
        # An OSError without a number comes from a decompressor: damaged data.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        if _is_web_page(path):
            cause = f"a web page, not {name}; a mirror that has lost a file often answers with one"
        elif isinstance(error, getattr(tarfile, "FilterError", ())):
            cause = f"not unpacked: {error}"
        elif isinstance(error, EOFError):
            cause = "truncated"
        else:
            cause = f"damaged, or not what the name {name} says ({error})"
        raise UserError(f"{path}: {cause}") from None


def _is_web_page(path: Path) -> bool:
    with open(path, "rb") as stream:
        return stream.read(256).lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_WEB_PAGE)
