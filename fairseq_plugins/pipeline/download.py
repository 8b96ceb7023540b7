"""``fairseq-deep download``: get an archive from the first mirror that has it, and check it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import locked
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.pipeline.commands import interruptible
from fairseq_plugins.pipeline.workspace import make_directory, say
from fairseq_plugins.process import NO_ROOM
from fairseq_plugins.text.archives import checksum_like, is_web_page, known_checksums

TIMEOUT_SECONDS = 60.0
NOTHING_MORE = 416
"""Status for a range that begins at the end of the file."""
SHA256 = "0" * 64
"""An example of the kind of checksum that is printed for a file without a known one."""


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

        A web page or a file with the wrong checksum is kept as ``NAME.wrong`` and never used.

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
        problems = []
        # What an earlier download has left may be of another file: then each mirror has a second chance.
        for url in [*urls, *urls] if part.exists() else urls:
            say(f"{target.name}: from {url}")
            try:
                fetch(url, part)
            except (HTTPException, OSError, ValueError) as error:
                if isinstance(error, OSError) and error.errno in NO_ROOM:
                    raise UserError(f"{part}: cannot be written; is the disk full?") from None
                problems.append(f"{url}: {error}")
                continue
            problem = self._what_is_wrong(target.name, part)
            if problem is None:
                break
            os.replace(part, wrong)
            problems.append(f"{url}: {problem}; the bad file is kept as {wrong}")
        else:
            advice = "you can put your own copy into a directory and set ARCHIVE_DIR to it"
            raise UserError(f"{target}: not downloaded: {'; '.join(dict.fromkeys([*problems, advice]))}")
        if target.name not in self.checksums:
            checksum = checksum_like(SHA256, part)
            say(f"{target}: no known checksum; to pin it, add this line to a checksum file: {checksum}  {target.name}")
        os.replace(part, target)

    def _what_is_wrong(self, name: str, path: Path) -> str | None:
        """Why ``path`` is not the file ``name``; None if it is, or may be."""
        known = self.checksums.get(name)
        if is_web_page(path):
            return f"a web page, not {name}; a mirror that has lost a file often answers with one"
        if known is not None and known != (actual := checksum_like(known, path)):
            return f"wrong checksum: {known} expected, {actual} found"
        return None


def fetch(url: str, part: Path) -> None:
    """Download what is missing of ``part``; take up a broken connection as long as each attempt adds bytes.

    Raises:
        OSError, HTTPException, ValueError: no connection, the server refused, nothing can be written, or no URL.
    """
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            return _fetch_rest(url, part, before)
        except (HTTPException, OSError) as error:
            if isinstance(error, HTTPError) and error.code == NOTHING_MORE and before:
                return None  # Whether it is the right file is checked next.
            if not part.exists() or part.stat().st_size <= before:
                raise


def _fetch_rest(url: str, part: Path, before: int) -> None:
    """One request for everything after the first ``before`` bytes; all of it from a server that cannot continue."""
    headers = {"User-Agent": "fairseq-deep"} | ({"Range": f"bytes={before}-"} if before else {})
    with urlopen(Request(url, headers=headers), timeout=TIMEOUT_SECONDS) as response:
        size = before if response.status == 206 else 0
        whole = size + int(response.headers.get("Content-Length") or 0)
        with open(part, "ab" if size else "wb") as stream:
            while piece := response.read(1 << 20):
                size += stream.write(piece)
                if sys.stderr.isatty():
                    end = "\n" if size == whole else ""
                    print(f"\r{part.stem}: {size / 1e6:,.0f} of {whole / 1e6:,.0f} MB", end=end, file=sys.stderr)
    if size < whole:
        raise ConnectionError("the connection broke")


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
