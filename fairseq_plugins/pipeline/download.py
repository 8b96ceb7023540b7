"""``fairseq-deep download``: get an archive from the first mirror that has it, and check it."""

from __future__ import annotations

import fcntl
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from fairseq_plugins.errors import UserError
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.pipeline.commands import interruptible
from fairseq_plugins.pipeline.workspace import make_directory, remove, say
from fairseq_plugins.text.archives import check_archive, checksum_like, known_checksums

TIMEOUT_SECONDS = 60.0
PAUSES = (1.0, 2.0, 4.0)
"""Seconds between the attempts at a busy server."""

BUSY = {408, 429, 500, 502, 503, 504}
NOTHING_MORE = 416
"""Status for a range that begins at the end of the file."""

SHA256 = "0" * 64
"""An example of the kind of checksum that is printed for a file without a known one."""

_PIECE = 1 << 20


class _Failed(Exception):
    """An address did not give the file.

    Args:
        problem: why.
        part_in_the_way: whether the partial file on the disk may be the reason.
    """

    def __init__(self, problem: str, part_in_the_way: bool = False) -> None:
        super().__init__(problem)
        self.part_in_the_way = part_in_the_way


@dataclass(frozen=True)
class Downloads:
    """Sources and cache of archives.

    Args:
        cache: the directory of downloads.
        own: a directory with the user's own copies, used instead of the network.
        checksums: by file name; MD5, SHA-1 or SHA-256.
        dry_run: only print what would be downloaded.
    """

    cache: Path
    own: Path | None = None
    checksums: Mapping[str, str] = field(default_factory=known_checksums)
    dry_run: bool = False

    def path(self, name: str) -> Path:
        """Where :meth:`get` leaves the file ``name``."""
        return (self.own or self.cache) / name

    def get(self, name: str, urls: Sequence[str]) -> Path:
        """Get the file ``name`` from the first of ``urls`` that has it; continue an interrupted download.

        A file that is truncated or has the wrong checksum is kept as ``NAME.wrong`` and never used.

        Raises:
            UserError: no URL gave it, the user's own copy is missing or wrong, or the cache cannot be written.
        """
        target = self.path(name)
        if self.dry_run:
            if self.own is None:
                say(shlex.join(["curl", "--output", str(target), urls[0]]))
        elif self.own is not None:
            self._require_own(target, urls)
        else:
            make_directory(self.cache)
            with self._alone(name):
                if target.exists():
                    say(f"{target}: exists already, kept")
                else:
                    self._download(target, urls)
        return target

    def _require_own(self, target: Path, urls: Sequence[str]) -> None:
        if not target.exists():
            raise UserError(
                f"{target}: no such file; ARCHIVE_DIR is set, so it is not downloaded from {' '.join(urls)}"
            )
        if problem := self._what_is_wrong(target.name, target):
            raise UserError(f"{target}: {problem}")

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Lock the file ``name``: a second job waits for the first one's download and then finds it."""
        try:
            lock = os.open(self.cache / f".{name}.lock", os.O_WRONLY | os.O_CREAT, 0o666)
        except OSError:
            raise UserError(f"{self.cache}: cannot be written") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _download(self, target: Path, urls: Sequence[str]) -> None:
        part = target.with_name(target.name + ".part")
        problems: list[str] = []
        whole, part_in_the_way = self._from_mirrors(target, part, urls, problems)
        if not whole and part_in_the_way:
            remove(part)
            whole, _ = self._from_mirrors(target, part, urls, problems)
        if not whole:
            wrong = _wrong(target)
            problems += [f"the bad file is kept as {wrong}"] if wrong.exists() else []
            advice = "you can put your own copy into a directory and set ARCHIVE_DIR to it"
            raise UserError(f"{target}: not downloaded: {'; '.join([*problems, advice])}")
        if target.name not in self.checksums:
            checksum = checksum_like(SHA256, part)
            say(f"{target}: no known checksum; to pin it, add this line to a checksum file: {checksum}  {target.name}")
        os.replace(part, target)

    def _from_mirrors(self, target: Path, part: Path, urls: Sequence[str], problems: list[str]) -> tuple[bool, bool]:
        """Whether ``part`` is now the whole file; if not, whether the old partial file may have been the reason."""
        part_in_the_way = False
        for url in urls:
            began = _size(part) > 0
            say(f"{target.name}: from {url}")
            try:
                _continue(url, part)
            except _Failed as failure:
                problems.append(f"{url}: {failure}")
                part_in_the_way |= failure.part_in_the_way
                continue
            problem = self._what_is_wrong(target.name, part)
            if problem is None:
                return True, False
            os.replace(part, _wrong(target))
            problems.append(f"{url}: {problem}")
            part_in_the_way |= began
        return False, part_in_the_way

    def _what_is_wrong(self, name: str, path: Path) -> str | None:
        """Why ``path`` is not the file ``name``. Without a known checksum the archive is read to its end."""
        known = self.checksums.get(name)
        try:
            if known is None:
                check_archive(path, name)
            elif known != (actual := checksum_like(known, path)):
                return f"wrong checksum: {known} expected, {actual} found"
        except UserError as error:
            return str(error).removeprefix(f"{path}: ")
        return None


def _wrong(target: Path) -> Path:
    return target.with_name(target.name + ".wrong")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _continue(url: str, part: Path) -> None:
    """Append the rest of the file to ``part``; retry a broken connection as long as each attempt adds bytes."""
    pauses = iter(PAUSES)
    while True:
        before = _size(part)
        try:
            _add(url, part, before)
            return
        except HTTPError as error:
            if error.code == NOTHING_MORE and before:
                return  # Whether it is the right file is checked next.
            pause = next(pauses, None) if error.code in BUSY else None
            if pause is None:
                raise _Failed(f"HTTP status {error.code}") from None
            time.sleep(pause)
        except UserError:
            raise
        except (HTTPException, OSError, ValueError) as error:
            if _size(part) == before:
                raise _Failed(_cause(error)) from None


def _add(url: str, part: Path, before: int) -> None:
    """Request everything after the first ``before`` bytes.

    Raises:
        HTTPError: the server refused.
        OSError: the connection failed or broke.
        _Failed: the server cannot continue a download.
        UserError: nothing can be written.
    """
    headers = {"User-Agent": "fairseq-deep"} | ({"Range": f"bytes={before}-"} if before else {})
    with urlopen(Request(url, headers=headers), timeout=TIMEOUT_SECONDS) as response:
        if before and response.status != 206:
            raise _Failed("the server cannot continue a download", part_in_the_way=True)
        length = response.headers.get("Content-Length")
        expected = None if length is None else before + int(length)
        size = before
        while piece := response.read(_PIECE):
            _append(part, piece)
            size += len(piece)
            _show(part.stem, size, expected)
        if expected is not None and size < expected:
            raise ConnectionError("the connection broke")


def _append(part: Path, piece: bytes) -> None:
    try:
        with open(part, "ab") as stream:
            stream.write(piece)
    except OSError:
        raise UserError(f"{part}: cannot be written; is the disk full?") from None


def _show(name: str, size: int, expected: int | None) -> None:
    if sys.stderr.isatty():
        share = f" of {expected / 1e6:,.0f}" if expected else ""
        print(f"\r{name}: {size / 1e6:,.0f}{share} MB", end="\n" if size == expected else "", file=sys.stderr)


def _cause(error: Exception) -> str:
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, socket.gaierror):
        return "no such host"
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    if isinstance(reason, ConnectionRefusedError):
        return "no connection"
    return str(reason)


def chosen(
    to: Path | None = None, own: Path | None = None, checksums: Path | None = None, *, dry_run: bool = False
) -> Downloads:
    """Downloads as set by flags, or else by ``CACHE``, ``ARCHIVE_DIR`` and ``CHECKSUMS`` in the environment.

    Raises:
        UserError: the file of checksums cannot be read.
    """
    named = os.environ.get("ARCHIVE_DIR")
    cache = to or Path(os.environ.get("CACHE") or "data/cache")
    return Downloads(cache, own or (Path(named) if named else None), known_checksums(checksums), dry_run)


def main(argv: Sequence[str]) -> int:
    """``fairseq-deep download NAME URL ...``."""
    flags = OneLineParser(
        prog="fairseq-deep download",
        description="Download an archive from the first mirror that has it. An interrupted download continues. The "
        "archive is checked before it gets its name.",
    )
    flags.add_argument("name", metavar="NAME", help="file name; also selects the known checksum")
    flags.add_argument("urls", metavar="URL", nargs="+", help="mirrors, tried in this order")
    flags.add_argument("--to", type=Path, metavar="DIR", help="default: the environment's CACHE, or data/cache")
    flags.add_argument(
        "--archive-dir",
        type=Path,
        metavar="DIR",
        help="check and use your own copies in DIR instead of the network (default: the environment's ARCHIVE_DIR)",
    )
    flags.add_argument(
        "--checksums",
        type=Path,
        metavar="FILE",
        help="known checksums in sha256sum's format (default: the environment's CHECKSUMS, or those of this package)",
    )
    flags.add_argument("--dry-run", action="store_true", help="only print what would be downloaded")
    args = flags.read(argv)
    downloads = chosen(args.to, args.archive_dir, args.checksums, dry_run=args.dry_run)
    with interruptible():
        downloads.get(args.name, args.urls)
    return 0
