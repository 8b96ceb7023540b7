"""The Perl tools of Moses, used if ``MOSES`` is set to a checkout of Moses or its ``scripts`` directory.

The published corpora were made with them; they are the reference for the Python steps.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from fairseq_plugins.errors import UserError


def scripts() -> Path | None:
    """The directory ``scripts`` of Moses, from the environment variable ``MOSES``; None if that is unset.

    Raises:
        UserError: it is set to something else, or there is no Perl.
    """
    named = os.environ.get("MOSES")
    if not named:
        return None
    for directory in (Path(named), Path(named, "scripts")):
        if (directory / "tokenizer" / "tokenizer.perl").is_file():
            if shutil.which("perl") is None:
                raise UserError("MOSES is set, but perl is not installed; install perl, or unset MOSES")
            return directory
    raise UserError(f"MOSES={named}: contains neither tokenizer/tokenizer.perl nor scripts/tokenizer/tokenizer.perl")


def tokenise_command(
    directory: Path, language: str, aggressive: bool, escape: bool, threads: int, quiet: bool = True
) -> list[str]:
    """The command of tokenizer.perl."""
    options = (["-q"] if quiet else []) + (["-a"] if aggressive else []) + ([] if escape else ["-no-escape"])
    return _perl(directory, "tokenizer.perl", "-l", language, "-threads", str(threads), *options)


def detokenise_command(directory: Path, language: str) -> list[str]:
    """The command of detokenizer.perl."""
    return _perl(directory, "detokenizer.perl", "-q", "-l", language)


def normalise_command(directory: Path, language: str) -> list[str]:
    """The command of normalize-punctuation.perl."""
    return _perl(directory, "normalize-punctuation.perl", "-l", language)


def _perl(directory: Path, script: str, *options: str) -> list[str]:
    path = directory / "tokenizer" / script
    if not path.is_file():
        raise UserError(f"{path}: no such file; it is needed because MOSES is set")
    return ["perl", str(path), *options]


def through(command: Sequence[str], lines: Iterable[str]) -> Iterator[str]:
    """The output of a program that writes one line for every line.

    Raises:
        UserError: the program failed, or wrote another number of lines.
    """
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        feeder = _Feeder(child.stdin, lines)
        feeder.start()
        answered = 0
        try:
            for line in child.stdout:
                answered += 1
                yield line.decode("utf-8").removesuffix("\n")
        except BaseException:
            child.kill()
            raise
        feeder.join()
    if feeder.error is not None:
        raise feeder.error
    script = Path(command[1])
    if child.returncode != 0:
        raise UserError(f"{script}: ended with code {child.returncode}")
    if answered != feeder.given:
        raise UserError(f"{script}: {feeder.given:,} lines went in and {answered:,} came out")


class _Feeder(threading.Thread):
    """Writes to a program in its own thread; a single thread would deadlock when a pipe is full."""

    def __init__(self, stream: IO[bytes], lines: Iterable[str]) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self._lines = lines
        self.given = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with self._stream:
                for line in self._lines:
                    self._stream.write(line.encode("utf-8") + b"\n")
                    self.given += 1
        except BrokenPipeError:
            pass  # The program ended early; its exit code is checked later.
        except Exception as error:
            self.error = error
