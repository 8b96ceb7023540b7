"""The steps ``check-archive`` and ``unpack``.

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
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any, cast

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import checksum
from fairseq_plugins.text.command import parser_of

TAR = (".tar", ".tgz", ".tar.gz", ".tbz2", ".tar.bz2", ".txz", ".tar.xz")
ZIP = (".zip",)
COMPRESSED = (".gz", ".bz2", ".xz")

_DECOMPRESSORS: tuple[tuple[bytes, Callable[[Path], Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ", lzma.open),
)
"""By the first bytes, not by the name, because browsers and proxies may decompress a ``.tgz``."""

_WEB_PAGE = (b"<!doctype html", b"<html", b"<head", b"<?xml")
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError)
_PIECE = 1 << 20
_KINDS = {32: "md5", 40: "sha1", 64: "sha256"}
_CHECKSUMS = Path(__file__).with_name("checksums.txt")


@dataclass
class Wanted:
    """Members to unpack, and the target; without a directory the archive is only read.

    Args:
        directory: the target.
        patterns: of paths in the archive; if empty, everything is unpacked.
    """

    directory: Path | None = None
    patterns: Sequence[str] = ()
    unmatched: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.unmatched = set(self.patterns)

    def goes_to(self, name: str) -> Path | None:
        """The directory for the member ``name``; None to skip it."""
        matched = {pattern for pattern in self.patterns if fnmatchcase(name, pattern)}
        self.unmatched -= matched
        return self.directory if matched or not self.patterns else None


def check_archive(path: Path, name: str | None = None) -> int:
    """Read an archive to its end and return its number of files; 1 for a file that is not an archive.

    Args:
        path: the file.
        name: a name with the expected suffix, if the suffix of ``path`` is different.

    Raises:
        UserError: it is empty, a web page, truncated, damaged, or of another kind than ``name``.
    """
    return len(_read(path, name or path.name, Wanted()))


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
    _require_unpackable(archive, directory)
    partial = directory.with_name(directory.name + ".unpacking")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        wanted = Wanted(partial, only)
        names = _read(archive, archive.name, wanted)
        if wanted.unmatched:
            raise UserError(
                f"{archive}: nothing matches {' '.join(sorted(wanted.unmatched))}; it contains {_some(names)}"
            )
        files = [path for path in sorted(partial.rglob("*")) if path.is_file()]
        _check_sums(archive, files, sums or {})
        partial.rename(directory)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return len(files)


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


def _require_unpackable(archive: Path, directory: Path) -> None:
    if not archive.name.endswith(TAR + ZIP):
        raise UserError(f"{archive}: not the name of an archive; legal endings: {' '.join(TAR + ZIP)}")
    if directory.exists():
        raise UserError(f"{directory}: exists already")
    if not hasattr(tarfile, "data_filter"):
        raise UserError("this Python cannot unpack archives safely; 3.10.12, 3.11.4 and all later releases can")


def _check_sums(archive: Path, files: Sequence[Path], sums: Mapping[str, str]) -> None:
    for path in files:
        known = sums.get(path.name)
        if known is not None and known != (found := checksum_like(known, path)):
            raise UserError(f"{archive}: {path.name}: wrong checksum: {known} expected, {found} found")


def _read(path: Path, name: str, wanted: Wanted) -> list[str]:
    """Read the whole file, unpack the wanted members, and return the paths of all files in it."""
    if path.stat().st_size == 0:
        raise UserError(f"{path}: empty")
    with _damage_reported(path, name):
        if name.endswith(TAR):
            names = _read_tar(path, wanted)
        elif name.endswith(ZIP):
            names = _read_zip(path, wanted)
        else:
            names = _read_single(path, name)
    if not names:
        raise UserError(f"{path}: contains no file")
    return names


def _read_tar(path: Path, wanted: Wanted) -> list[str]:
    names = []
    with _decompressed(path) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
        for member in archive:
            directory = wanted.goes_to(member.name)
            if directory is not None:
                archive.extract(member, directory, filter="data")
            if member.isfile():
                names.append(member.name)
        if _decompressor(path) is None:
            # tarfile takes an unreadable header for the end, and there is no checksum that would detect it.
            stream.seek(archive.offset)
            if stream.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
                raise tarfile.ReadError("its end is missing")
        _read_on(stream)
    return names


def _read_zip(path: Path, wanted: Wanted) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        for member in members:
            directory = wanted.goes_to(member.filename)
            if directory is not None:
                archive.extract(member, directory)
            else:
                with archive.open(member) as stream:
                    _read_on(stream)
    return [member.filename for member in members]


def _read_single(path: Path, name: str) -> list[str]:
    if name.endswith(COMPRESSED) and _decompressor(path) is None:
        raise tarfile.ReadError("not compressed")
    if not name.endswith((".html", ".xml", ".sgm")) and _is_web_page(path):
        raise tarfile.ReadError("a web page")
    with _decompressed(path) as stream:
        _read_on(stream)
    return [name]


def _decompressor(path: Path) -> Callable[[Path], Any] | None:
    with open(path, "rb") as stream:
        start = stream.read(8)
    return next((opener for magic, opener in _DECOMPRESSORS if start.startswith(magic)), None)


def _decompressed(path: Path) -> IO[bytes]:
    opener = _decompressor(path)
    return cast("IO[bytes]", opener(path) if opener else open(path, "rb"))


def _read_on(stream: IO[bytes]) -> None:
    """Read to the end, where gzip, bzip2 and xz check."""
    while stream.read(_PIECE):
        pass


@contextmanager
def _damage_reported(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise UserError(f"{path}: {_cause(path, name, error)}") from None
    except OSError as error:
        # An OSError without a number comes from a decompressor: damaged data.
        if error.errno is not None:
            raise
        raise UserError(f"{path}: {_cause(path, name, error)}") from None


def _cause(path: Path, name: str, error: BaseException) -> str:
    if _is_web_page(path):
        return f"a web page, not {name}; a mirror that has lost a file often answers with one"
    if isinstance(error, getattr(tarfile, "FilterError", ())):
        return f"not unpacked: {error}"
    if isinstance(error, EOFError):
        return "truncated"
    return f"damaged, or not what the name {name} says ({error})"


def _is_web_page(path: Path) -> bool:
    with open(path, "rb") as stream:
        return stream.read(256).lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_WEB_PAGE)


def _some(names: Sequence[str], count: int = 5) -> str:
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more


def main_of_check(argv: Sequence[str]) -> int:
    """The step ``check-archive``."""
    parser = parser_of("check-archive", "Read an archive to its end.")
    parser.add_argument("--name", help="a name with the expected suffix (default: the file's own name)")
    parser.add_argument("archive", type=Path)
    arguments = parser.read(argv)
    print(f"{arguments.archive}: complete, {check_archive(arguments.archive, arguments.name)} files")
    return 0


def main_of_unpack(argv: Sequence[str]) -> int:
    """The step ``unpack``."""
    parser = parser_of("unpack", "Unpack an archive into a directory.")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="skip members that match none")
    parser.add_argument("--sums", type=Path, help="known checksums of members, by base name; default: CHECKSUMS")
    parser.add_argument("archive", type=Path)
    parser.add_argument("directory", type=Path)
    arguments = parser.read(argv)
    count = unpack(arguments.archive, arguments.directory, arguments.only, known_checksums(arguments.sums))
    print(f"{arguments.archive.name}: {count} files unpacked")
    return 0
