"""Unpack archives whole or not at all, and know their checksums."""

import lzma
import os
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from fnmatch import fnmatchcase, translate
from pathlib import Path, PurePosixPath
from typing import IO

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import whole_directory
from fairseq_plugins.process import NO_ROOM
from fairseq_plugins.sums import checksum, listed

DAMAGE = tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError
"""Errors of the libraries at an archive that they cannot read; RuntimeError: the archive is encrypted."""
_CHECKSUMS = Path(__file__).with_name("checksums.txt")


def unpack(archive: Path, directory: Path, *, only: Sequence[str] = ()) -> str:
    """Unpack a zip or tar archive into a directory; files with a known checksum must have it.

    The directory appears when it is complete. Each member is checked before it is written: it is a file or a directory,
    at a path inside. Python's own filter is not used: a version has let links lead outside (CVE-2025-4517). A UserError
    names the first problem.

    Options:
        only: a pattern of paths in the archive, such as *.de-en.*; members that match none are skipped
    """
    if directory.exists():
        raise UserError(f"{directory}: exists already")
    sums = known_checksums()
    with whole_directory(directory) as partial:
        names = _unpacked(archive, partial, only)
        if unmatched := [pattern for pattern in only if not any(fnmatchcase(name, pattern) for name in names)]:
            raise UserError(f"{archive}: nothing matches {' '.join(unmatched)}; it contains {', '.join(names[:5])} ...")
        files = [path for path in partial.rglob("*") if path.is_file()]
        for path in files:
            known = sums.get(path.name)
            if known is not None and known != (actual := checksum(path, digits=len(known))):
                raise UserError(f"{archive}: {path.name}: wrong checksum: {known} expected, {actual} found")
    return f"{archive.name}: {len(files):,} files unpacked"


def known_checksums() -> dict[str, str]:
    """The checksums of a file in ``sha256sum``'s format, by name: the one in CHECKSUMS, else this package's."""
    path = Path(os.environ.get("CHECKSUMS") or _CHECKSUMS)
    try:
        return listed(path)
    except UserError as error:
        raise UserError(f"{error}; CHECKSUMS names the file of known checksums") from None


def _unpacked(path: Path, directory: Path, only: Sequence[str]) -> list[str]:
    """Unpack the members that match a pattern, and return the names of all."""
    wanted = re.compile("|".join(map(translate, only)))
    try:
        if path.suffix != ".zip":
            return _from_tar(path, directory, wanted)
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if wanted.match(member.filename):
                    _write(directory, member.filename, None if member.is_dir() else archive.open(member))
            return archive.namelist()
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise
        cause = (str(error) or type(error).__name__).splitlines()[0].partition(": ")[0].rstrip(":")
        raise UserError(f"{path}: not unpacked: {cause}") from None


def _from_tar(path: Path, directory: Path, wanted: re.Pattern[str]) -> list[str]:
    names = []
    # Compressed or not: browsers and proxies may decompress a .tgz and keep its name.
    with tarfile.open(path) as archive:
        for member in archive:
            names.append(member.name)
            if wanted.match(member.name):
                if not member.isreg() and not member.isdir():
                    raise tarfile.ReadError(f"{member.name!r} is a link or a device")
                _write(directory, member.name, archive.extractfile(member))
        # tarfile takes a header that is cut or damaged for the end, which is a block of zeros.
        stream = archive.fileobj
        assert stream is not None
        stream.seek(archive.offset)
        if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise EOFError("unexpected end of data")
        while stream.read(1 << 20):  # to the end, where gzip has a sum
            pass
    return names


def _write(directory: Path, name: str, content: IO[bytes] | None) -> None:
    """Write a member below ``directory``, which holds no links: a file, or a directory without ``content``."""
    place = PurePosixPath(name)
    if place.is_absolute() or ".." in place.parts or "\0" in name:
        raise tarfile.ReadError(f"{name!r} leads outside")
    target = directory / place
    (target.parent if content else target).mkdir(parents=True, exist_ok=True)
    if content:
        with content, open(target, "wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
