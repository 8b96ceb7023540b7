"""Check archives, and unpack them.

A mirror that has lost a file often answers with an error page, which is then stored under the archive's name. A broken
connection leaves a truncated archive. Reading an archive to its end finds both.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from io import BufferedReader
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import checksum

TAR = (".tar", ".tgz", ".tar.gz")
ZIP = (".zip",)

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
    return len(_read(path, name or path.name))


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

    def is_wanted(name: str) -> bool:
        matched = {pattern for pattern in only if fnmatchcase(name, pattern)}
        unmatched.difference_update(matched)
        return bool(matched) or not only

    partial = directory.with_name(directory.name + ".unpacking")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        names = _read(archive, archive.name, partial, is_wanted)
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


def _read(
    path: Path, name: str, directory: Path | None = None, is_wanted: Callable[[str], bool] = lambda _: True
) -> list[str]:
    """Read the file ``name`` to its end, unpack what is wanted into ``directory``, and return the paths in it."""
    if path.stat().st_size == 0:
        raise UserError(f"{path}: empty")
    read = _read_zip if name.endswith(ZIP) else _read_tar if name.endswith(TAR) else None
    try:
        names = [name] if read is None else read(path, directory, is_wanted)
        if read is None:
            _read_single(path, name)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        # An OSError without a number comes from a decompressor: damaged data.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise UserError(f"{path}: {_cause(path, name, error)}") from None
    if not names:
        raise UserError(f"{path}: contains no file")
    return names


def _read_tar(path: Path, directory: Path | None, is_wanted: Callable[[str], bool]) -> list[str]:
    names = []
    # Compressed or not: browsers and proxies may decompress a .tgz and keep its name.
    with tarfile.open(path) as archive:
        stream = archive.fileobj
        assert stream is not None
        for member in archive:
            if directory is not None and is_wanted(member.name):
                archive.extract(member, directory, filter="data")
            if member.isfile():
                names.append(member.name)
        if isinstance(stream, BufferedReader):
            # tarfile takes an unreadable header for the end; without compression no checksum would detect it.
            stream.seek(archive.offset)
            if stream.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
                raise tarfile.ReadError("its end is missing")
        _read_on(stream.read)
    return names


def _read_zip(path: Path, directory: Path | None, is_wanted: Callable[[str], bool]) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        if damaged := archive.testzip():
            raise zipfile.BadZipFile(damaged)
        names = [member.filename for member in archive.infolist() if not member.is_dir()]
        if directory is not None:
            archive.extractall(directory, [name for name in names if is_wanted(name)])
    return names


def _read_single(path: Path, name: str) -> None:
    if not name.endswith((".html", ".xml", ".sgm")) and _is_web_page(path):
        raise tarfile.ReadError("a web page")
    with gzip.open(path) if name.endswith(".gz") else open(path, "rb") as stream:
        _read_on(stream.read)


def _read_on(read: Callable[[int], bytes]) -> None:
    """Read to the end, where gzip checks."""
    while read(_PIECE):
        pass


def _cause(path: Path, name: str, error: Exception) -> str:
    if _is_web_page(path):
        return f"a web page, not {name}; a mirror that has lost a file often answers with one"
    if isinstance(error, getattr(tarfile, "FilterError", ())):
        return f"not unpacked: {error}"
    if isinstance(error, EOFError):
        return "truncated"
    return f"damaged, or not what the name {name} says ({str(error).partition(':')[0]})"


def _is_web_page(path: Path) -> bool:
    with open(path, "rb") as stream:
        return stream.read(256).lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_WEB_PAGE)
