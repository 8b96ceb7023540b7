"""Read and write lines of text: strict UTF-8, lines end only at a line feed, files appear when complete.

Python's text mode and ``str.splitlines`` also end lines at a carriage return, U+2028 and others, so parallel files
would silently lose their alignment.
"""

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from fairseq_plugins.errors import UserError, cause_of
from fairseq_plugins.files import whole_file

Item = TypeVar("Item")

OVERWRITE = " #fairseq:overwrite"
"""End of a line of fairseq's dictionaries whose word replaces an earlier one."""


def read_lines(*paths: Path) -> Iterator[str]:
    """Yield the lines of all files, one file after the other, without line ends.

    A name that ends in ``.gz`` is read as gzip. A byte order mark at the beginning of a file is dropped.

    Raises:
        UserError: a file is missing, empty, not UTF-8 (with the line number), or not a whole gzip file.
    """
    for path in paths:
        lines = decoded(raw_lines(path), path)
        first = next(lines, None)
        if first is None:
            raise UserError(f"{path}: empty")
        yield first
        yield from lines


def decoded(lines: Iterable[bytes], name: object, first: int = 1) -> Iterator[str]:
    """Yield lines of UTF-8 without their line feeds and without a byte order mark.

    Args:
        lines: as a binary file yields them.
        name: names the text in messages.
        first: the number of the first of them.

    Raises:
        UserError: a line is not UTF-8.
    """
    for number, line in enumerate(lines, first):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\n")
        except UnicodeDecodeError as error:
            # `error.object` holds the decoded bytes; the line may have a byte order mark before them.
            byte = error.object[error.start]
            raise UserError(f"{name}: line {number}: not UTF-8 (byte 0x{byte:02x})") from None


def raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file with their line ends, in any encoding; errors are those of :func:`read_lines`."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as stream:
            yield from stream
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"{path}: not a whole gzip file") from None
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: {cause_of(error)}") from None


def in_step(paths: Sequence[Path]) -> Iterator[tuple[str, ...]]:
    """Yield line k of every file, for every k.

    A UserError as :func:`read_lines`, or if the files have different numbers of lines, which the message gives.
    """
    readers = [read_lines(path) for path in paths]
    for number, lines in enumerate(zip_longest(*readers)):
        if None in lines:
            counts = [
                number + (line is not None) + sum(1 for _ in reader)
                for line, reader in zip(lines, readers, strict=True)
            ]
            counted = ", ".join(f"{path} has {count:,} lines" for path, count in zip(paths, counts, strict=True))
            raise UserError(f"{paths[0]}: not parallel: {counted}; line k must translate line k")
        yield lines


def check_files(files: Sequence[Path]) -> str:
    """Check that files are UTF-8, not empty, and have equally many lines, not all of them blank."""
    count = blank = 0
    some_text = [False] * len(files)
    for lines in in_step(files):
        present = [bool(line) and not line.isspace() for line in lines]
        count += 1
        blank += not all(present)
        some_text = [seen or now for seen, now in zip(some_text, present, strict=True)]
    if problems := [f"{path}: all lines are blank" for path, seen in zip(files, some_text, strict=True) if not seen]:
        raise UserError(problems)
    return f"{' '.join(map(str, files))}: {count:,} lines each" + (f", {blank:,} blank" if blank else "")


def grouped(
    items: Iterable[Item], size: int, weight: Callable[[Item], int] = lambda item: 0, heaviest: int = 1
) -> Iterator[list[Item]]:
    """Put items together; those before an error come out before the error does.

    Args:
        items: in order.
        size: most items of a group.
        weight: returns the weight of an item.
        heaviest: a group of this weight is full at any size.
    """
    group: list[Item] = []
    total = 0
    try:
        for item in items:
            group.append(item)
            total += weight(item)
            if len(group) == size or total >= heaviest:
                yield group
                group, total = [], 0
    except Exception:
        if group:
            yield group
        raise
    if group:
        yield group


@contextmanager
def whole_files(*paths: Path) -> Iterator[list[BinaryIO]]:
    """Files to write to, which appear as ``paths`` when the block has ended; after an error none of them appears.

    A UserError if a file cannot be written, or two are one.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise UserError(f"{' '.join(map(str, paths))}: two outputs are the same file; choose another name")
    try:
        with ExitStack() as names, ExitStack() as streams:
            partials = [names.enter_context(whole_file(path)) for path in paths]
            yield [_opened(path, partial, streams) for path, partial in zip(paths, partials, strict=True)]
    except OSError as error:
        raise UserError(f"{' '.join(map(str, paths))}: cannot be written: {cause_of(error)}") from None


def _opened(path: Path, partial: Path, streams: ExitStack) -> BinaryIO:
    """``partial`` to write to; packed if the name of ``path`` says so, as :func:`read_lines` reads it."""
    stream: BinaryIO = streams.enter_context(open(partial, "wb", buffering=1 << 20))
    if path.suffix != ".gz":
        return stream
    # Without the time and the name, equal text gives equal bytes.
    packed: Any = streams.enter_context(gzip.GzipFile("", "wb", fileobj=stream, mtime=0))
    return packed


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write a whole file and return the number of its lines, or raise a UserError."""
    count = 0
    with whole_files(path) as [stream]:
        for line in lines:
            stream.write(f"{line}\n".encode())
            count += 1
    return count
