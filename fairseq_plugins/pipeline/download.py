"""``fairseq-deep download``: get an archive from the first mirror that has it, and check it."""

from __future__ import annotations

import os
import shlex
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import locked
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.pipeline.commands import interruptible
from fairseq_plugins.pipeline.workspace import make_directory, say
from fairseq_plugins.process import NO_ROOM
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
            if not target.exists():
                raise UserError(
                    f"{target}: no such file; ARCHIVE_DIR is set, so it is not downloaded from {' '.join(urls)}"
                )
            if problem := self._what_is_wrong(name, target):
                raise UserError(f"{target}: {problem}")
        else:
            make_directory(self.cache)
            # A second job waits for the first one's download and then finds it.
            with locked(self.cache / f".{name}.lock"):
                if target.exists():
                    say(f"{target}: exists already, kept")
                else:
                    self._download(target, urls)
        return target

    def _download(self, target: Path, urls: Sequence[str]) -> None:
        part, wrong = (target.with_name(target.name + ending) for ending in (".part", ".wrong"))
        problems: list[str] = []
        for url in urls:
            begun = part.exists()
            problem = self._problem_of(url, part, wrong)
            if problem and begun and not part.exists():
                # What an earlier download had left was of another file.
                problem = self._problem_of(url, part, wrong)
            if problem is None:
                break
            problems.append(f"{url}: {problem}")
        else:
            problems += [f"the bad file is kept as {wrong}"] if wrong.exists() else []
            advice = "you can put your own copy into a directory and set ARCHIVE_DIR to it"
            raise UserError(f"{target}: not downloaded: {'; '.join([*problems, advice])}")
        if target.name not in self.checksums:
            checksum = checksum_like(SHA256, part)
            say(f"{target}: no known checksum; to pin it, add this line to a checksum file: {checksum}  {target.name}")
        os.replace(part, target)

    def _problem_of(self, url: str, part: Path, wrong: Path) -> str | None:
        """Download what is missing of ``part`` and check it; a bad file becomes ``wrong``."""
        say(f"{part.stem}: from {url}")
        try:
            fetch(url, part)
        except UserError:
            raise
        except HTTPError as error:
            return f"HTTP status {error.code}"
        except (HTTPException, OSError, ValueError) as error:
            return _cause(error)
        problem = self._what_is_wrong(part.stem, part)
        if problem is not None:
            os.replace(part, wrong)
        return problem

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


def fetch(url: str, part: Path) -> None:
    """Download what is missing of ``part``; take up a broken connection as long as each attempt adds bytes.

    Raises:
        HTTPError: the server refused; a busy one is asked again.
        OSError, HTTPException, ValueError: no connection, or no URL.
        UserError: nothing can be written.
    """
    pauses = iter(PAUSES)
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            _fetch_rest(url, part, before)
            return
        except HTTPError as error:
            if error.code == NOTHING_MORE and before:
                return  # Whether it is the right file is checked next.
            pause = next(pauses, None) if error.code in BUSY else None
            if pause is None:
                raise
            time.sleep(pause)
        except (HTTPException, OSError) as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                raise UserError(f"{part}: cannot be written; is the disk full?") from None
            if not part.exists() or part.stat().st_size <= before:
                raise


def _fetch_rest(url: str, part: Path, before: int) -> None:
    """One request for everything after the first ``before`` bytes; all of it from a server that cannot continue."""
    headers = {"User-Agent": "fairseq-deep"} | ({"Range": f"bytes={before}-"} if before else {})
    with urlopen(Request(url, headers=headers), timeout=TIMEOUT_SECONDS) as response:
        size = before if response.status == 206 else 0
        missing = response.headers.get("Content-Length")
        whole = None if missing is None else size + int(missing)
        with open(part, "ab" if size else "wb") as stream:
            while piece := response.read(_PIECE):
                size += stream.write(piece)
                if sys.stderr.isatty():
                    share = f" of {whole / 1e6:,.0f}" if whole else ""
                    end = "\n" if size == whole else ""
                    print(f"\r{part.stem}: {size / 1e6:,.0f}{share} MB", end=end, file=sys.stderr)
    if whole is not None and size < whole:
        raise ConnectionError("the connection broke")


def _cause(error: Exception) -> str:
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, socket.gaierror):
        return "no such host"
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    return "no connection" if isinstance(reason, ConnectionRefusedError) else str(reason)


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
