"""What the commands of the steps have in common: one or more files in, one file out, some workers."""

from __future__ import annotations

import argparse
from pathlib import Path


def parser_of(step: str, purpose: str | None) -> argparse.ArgumentParser:
    """The parser of a step; ``purpose`` is the docstring of its module, whose first sentence is shown."""
    summary = (purpose or "").split("\n\n")[0].replace("\n", " ")
    return argparse.ArgumentParser(
        prog=f"python -m fairseq_plugins.text {step}", description=summary, allow_abbrev=False
    )


def add_files(flags: argparse.ArgumentParser, many: bool = True) -> None:
    """INPUT ... OUTPUT; several inputs are read one behind the other."""
    flags.add_argument("inputs", type=Path, nargs="+" if many else 1, metavar="INPUT", help="text, or text.gz")
    flags.add_argument("output", type=Path, metavar="OUTPUT")


def add_workers(flags: argparse.ArgumentParser) -> None:
    """``--workers N``; the result does not depend on it."""
    flags.add_argument("--workers", type=at_least_one, default=1, metavar="N", help="processes; default: 1")


def at_least_one(value: str) -> int:
    """A whole number from 1 on."""
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return number
