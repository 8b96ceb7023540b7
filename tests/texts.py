"""Files of text, one sentence a line: only a line feed ends a line, not any other character in it."""

from collections.abc import Iterable
from pathlib import Path


def write(path: Path, lines: Iterable[str]) -> Path:
    """Write a file, and the directory that it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return path


def written(path: Path, content: bytes) -> Path:
    """Write a file byte for byte."""
    path.write_bytes(content)
    return path


def read(path: Path) -> list[str]:
    """The lines of a file."""
    return path.read_bytes().decode().split("\n")[:-1]
