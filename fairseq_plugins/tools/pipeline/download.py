"""``fairseq-deep download``: get an archive from the first mirror that has it, and check it."""

import os
import sys
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import locked, no_link
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.process import NO_ROOM
from fairseq_plugins.sums import checksum
from fairseq_plugins.tools.pipeline.commands import interruptible
from fairseq_plugins.tools.pipeline.workspace import make_directory, say
from fairseq_plugins.tools.text.archives import known_checksums

TIMEOUT_SECONDS = 60.0


def get(name: str, urls: Sequence[str]) -> Path:
    """Get the file ``name`` from the first of ``urls`` that has it; continue an interrupted download.

    ``CACHE`` of the environment, or data/cache, gets the file. A file with the wrong checksum is kept as ``NAME.wrong``
    and never used. The user's own copies in ``ARCHIVE_DIR`` replace the network, and are checked. A UserError without a
    right file.
    """
    own = os.environ.get("ARCHIVE_DIR")
    target, known = Path(own or os.environ.get("CACHE") or "data/cache") / name, known_checksums().get(name)
    if own:
        if not target.exists():
            raise UserError(
                f"{target}: no such file; ARCHIVE_DIR is set, so it is not downloaded from {' '.join(urls)}"
            )
        if problem := _what_is_wrong(target, known):
            raise UserError(f"{target}: {problem}")
        return target
    make_directory(target.parent)
    # A second job waits for the first one's download and then finds it.
    with locked(target.parent / f".{name}.lock"):
        if target.exists():
            if problem := _what_is_wrong(target, known):
                raise UserError(f"{target}: {problem}; delete it, and it is downloaded again")
            say(f"{target}: exists already, kept")
        else:
            _download(target, urls, known)
    return target


def _download(target: Path, urls: Sequence[str], known: str | None) -> None:
    part, wrong = (target.with_name(target.name + ending) for ending in (".part", ".wrong"))
    problems = []
    # An earlier download may have left a part of another file: then each mirror has a second chance.
    for url in [*urls, *urls] if part.exists() else urls:
        say(f"{target.name}: from {url}")
        try:
            fetch(url, part)
        except (HTTPException, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                raise UserError(f"{part}: cannot be written; is the disk full?") from None
            problems.append(f"{url}: {error}")
            continue
        problem = _what_is_wrong(part, known)
        if problem is None:
            break
        os.replace(part, wrong)
        problems.append(f"{url}: {problem}; the bad file is kept as {wrong}")
    else:
        advice = "you can put your own copy into a directory and set ARCHIVE_DIR to it"
        raise UserError(f"{target}: not downloaded: {'; '.join(dict.fromkeys([*problems, advice]))}")
    if known is None:
        line = f"{checksum(part)}  {target.name}"
        say(f"{target}: no known checksum; to pin it, add this line to a checksum file: {line}")
    os.replace(part, target)


def _what_is_wrong(path: Path, known: str | None) -> str | None:
    """Why ``path`` is not the file with the checksum ``known``; None if it is, or the checksum is unknown."""
    if path.stat().st_size == 0:
        return "an empty file"
    actual = None if known is None else checksum(path, digits=len(known))
    return None if actual == known else f"wrong checksum: {known} expected, {actual} found"


def fetch(url: str, part: Path) -> None:
    """Download the missing bytes of ``part``; take up a broken connection as long as each attempt adds bytes.

    Raises:
        OSError, HTTPException, ValueError: no connection, the server refused, nothing can be written, or no URL.
    """
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            return _fetch_rest(url, part, before)
        except (HTTPException, OSError) as error:
            if isinstance(error, HTTPError) and error.code == 416 and before:
                return None  # The range begins at the end of the file; whether it is the right one is checked next.
            if not part.exists() or part.stat().st_size <= before:
                raise


def _fetch_rest(url: str, part: Path, before: int) -> None:
    """One request for everything after the first ``before`` bytes; all of it from a server that cannot continue."""
    headers = {"User-Agent": "fairseq-deep"} | ({"Range": f"bytes={before}-"} if before else {})
    with urlopen(Request(url, headers=headers), timeout=TIMEOUT_SECONDS) as response:
        size = before if response.status == 206 else 0
        whole = size + int(response.headers.get("Content-Length") or 0)
        with open(part, "ab" if size else "wb", opener=no_link) as stream:
            while piece := response.read(1 << 20):
                size += stream.write(piece)
                if sys.stderr.isatty():
                    end = "\n" if size == whole else ""
                    print(f"\r{part.stem}: {size / 1e6:,.0f} of {whole / 1e6:,.0f} MB", end=end, file=sys.stderr)
    if size < whole:
        raise ConnectionError("the connection broke")


def main(argv: Sequence[str]) -> int:
    """``fairseq-deep download NAME URL ...``."""
    flags = OneLineParser(
        prog="fairseq-deep download",
        description="Download an archive from the first mirror that has it. An interrupted download continues. The "
        "file is checked before it gets its name. CACHE in the environment names its directory (default: "
        "data/cache); ARCHIVE_DIR one with your own copies, used instead of the network; CHECKSUMS a file of known "
        "checksums in sha256sum's format; default: the checksums of this package.",
    )
    flags.add_argument("name", metavar="NAME", help="file name; also selects the known checksum")
    flags.add_argument("urls", metavar="URL", nargs="+", help="mirrors, tried in this order")
    args = flags.read(argv)
    with interruptible():
        get(args.name, args.urls)
    return 0
