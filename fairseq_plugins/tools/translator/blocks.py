"""A translation of a file in blocks of lines, which several processes or machines share, and any of them continues.

Each block is a file that appears when it is whole. So a job that was stopped, or that lost a machine, loses at most the
blocks that were being translated, and the same command does what is missing.
"""

from __future__ import annotations

import gzip
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, count, islice
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import checksum, locked, require_no_input
from fairseq_plugins.lines import decoded, raw_lines, whole_files, write_lines
from fairseq_plugins.tools.pipeline.workspace import SETTINGS, Settings, Workspace, make_directory, say, settings_in

LINES = 10_000
"""Lines of a block."""


class Blocks:
    """The blocks of a file and the translations that exist, in a directory beside the output, ``OUTPUT.blocks``.

    Args:
        source: text, or text.gz.
        output: what is written in the end; gzip if its name ends in ``.gz``.
        settings: what the translations depend on besides the text.
        lines: of a block; the last may have fewer.

    Raises:
        UserError: the blocks that exist were made with other settings or of another text, ``output`` is ``source`` or
            no name of a file, or ``source`` can be read only once.
    """

    def __init__(self, source: Path, output: Path, settings: Settings, lines: int = LINES) -> None:
        require_no_input(output, [source])
        if not output.name:
            raise UserError(f"{output}: a directory; OUTPUT is a file")
        if source.exists() and not source.is_file():
            # What was read would be missing from the output.
            raise UserError(f"{source}: no regular file, and it is read more than once; write it to one first")
        self.source, self.output, self.lines = source, output, lines
        self.directory = output.with_name(f"{output.name}.blocks")
        if output.exists() and not (self.directory / SETTINGS).exists():
            raise UserError(f"{output}: exists, and {self.directory} does not say of what; choose another name")
        values = [*dict(settings).items(), ("lines of a block", lines), ("input", checksum(source))]
        make_directory(self.directory)
        with locked(self.directory / ".lock"):
            before, given = settings_in(self.directory), {name: str(value) for name, value in values}
            names = {"input": "INPUT", "weights": "MODEL"}.items()
            if others := [word for name, word in names if before.get(name, "") not in ("", given.get(name))]:
                made = f"fairseq-deep translate has begun there with another {' and '.join(others)}"
                raise UserError(f"{self.directory}: {made}; delete it and {output}, or choose another OUTPUT")
            Workspace(self.directory).remember(values)

    def file(self, number: int) -> Path:
        """Where the translation of a block is or will be."""
        return self.directory / f"{number:07d}"

    def read(self, number: int) -> list[str]:
        """Read the lines of a block."""
        first = number * self.lines
        lines = islice(raw_lines(self.source), first, first + self.lines)
        return list(decoded(lines, self.source, first + 1))

    def missing(self, part: int = 0, parts: int = 1) -> Iterator[tuple[int, list[str]]]:
        """Yield the number and the lines of each block of ``part`` that is not translated, while the text is read.

        Args:
            part: from 0.
            parts: in how many the blocks are shared out, by turns.
        """
        text = decoded(raw_lines(self.source), self.source)
        for number in count():
            block = list(islice(text, self.lines))
            # Another job may have joined the blocks.
            if not block or self.output.exists():
                return
            if number % parts == part and not self.file(number).exists():
                yield number, block

    def write(self, number: int, translations: Iterable[str]) -> int:
        """Write the translation of a block, whole or not at all, and return the number of its lines."""
        # Two jobs may have the same block, if one was taken for dead.
        own = self._own(number)
        done = write_lines(own, translations)
        os.replace(own, self.file(number))
        if self.output.exists():
            self.file(number).unlink(missing_ok=True)
        return done

    def _own(self, number: int) -> Path:
        """A name for what this process writes, which no other process uses, and which :meth:`join` removes."""
        return self.file(number).with_name(f"{number:07d}.{socket.gethostname()}.{os.getpid()}")

    def join(self) -> bool:
        """Write the output if every block is translated; return whether it is there.

        Raises:
            UserError: a block has not as many lines as its text.
        """
        if self.output.exists():
            return True
        with locked(self.directory / ".lock"):
            total = sum(1 for _ in raw_lines(self.source))
            lengths = [min(self.lines, total - first) for first in range(0, total, self.lines)]
            if self.output.exists() or not all(self.file(number).exists() for number in range(len(lengths))):
                return self.output.exists()
            # Where a disk has no locks, two machines may join at once.
            own = self._own(len(lengths))
            try:
                self._write_whole(own, lengths)
                os.replace(own, self.output)
            except (UserError, FileNotFoundError):
                if not self.output.exists():
                    raise
                return True
            # What a killed job has left, too.
            for file in self.directory.glob("[0-9]*"):
                file.unlink()
            say(f"{self.output}: {total:,} lines")
        return True

    def _write_whole(self, path: Path, lengths: Sequence[int]) -> None:
        with whole_files(path) as [stream], ExitStack() as opened:
            packed = self.output.suffix == ".gz"
            whole = opened.enter_context(gzip.GzipFile("", "wb", fileobj=stream, mtime=0)) if packed else stream
            for number, expected in enumerate(lengths):
                file = self.file(number)
                text = file.read_bytes()
                if (found := text.count(b"\n")) != expected:
                    raise UserError(f"{file}: {found:,} lines instead of {expected:,}; delete it, and repeat")
                whole.write(text)


def part_of(text: str) -> tuple[int, int]:
    """Read ``K/N``, the K-th of N parts, from 1; return K from 0, and N.

    Raises:
        ValueError: it is not of that form.
    """
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise ValueError(text)
    return int(part) - 1, int(parts)


def translate_missing(
    blocks: Blocks, stream: Callable[[Iterator[list[str]]], Iterable[list[str]]], part: tuple[int, int], group: int
) -> bool:
    """Translate what is missing of a part, then join if nothing is missing; return whether the output is there.

    The job that ends last joins, so that none has to wait for the others.

    Args:
        blocks: what is to be done.
        stream: translates groups of lines, in order; it may read some groups ahead.
        part: which, from 0, and of how many.
        group: lines of a group.
    """
    begun: deque[tuple[int, int]] = deque()

    def groups() -> Iterator[list[str]]:
        for number, lines in blocks.missing(*part):
            begun.append((number, len(lines)))
            for first in range(0, len(lines), group):
                yield lines[first : first + group]

    translated = chain.from_iterable(stream(groups()))
    for first in translated:
        number, length = begun.popleft()
        try:
            blocks.write(number, chain([first], islice(translated, length - 1)))
        except (UserError, FileNotFoundError):
            # Who took this job for dead has done its block, joined all, and removed what it was writing.
            if not blocks.output.exists():
                raise
            break
    return blocks.join()
