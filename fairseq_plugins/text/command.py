"""Common options of the steps: input files, one output file, workers."""

from __future__ import annotations

import argparse
from pathlib import Path

from fairseq_plugins.options import OneLineParser, at_least


def parser_of(step: str, purpose: str | None) -> OneLineParser:
    """The parser of a step; the first sentence of ``purpose``, its module's docstring, is the description."""
    summary = (purpose or "").split("\n\n")[0].replace("\n", " ")
    return OneLineParser(prog=f"python -m fairseq_plugins.text {step}", description=summary)


def add_files(flags: argparse.ArgumentParser, many: bool = True) -> None:
    """INPUT ... OUTPUT; several inputs are concatenated."""
    flags.add_argument("inputs", type=Path, nargs="+" if many else 1, metavar="INPUT", help="text, or text.gz")
    flags.add_argument("output", type=Path, metavar="OUTPUT")


def add_workers(flags: argparse.ArgumentParser) -> None:
    """``--workers N``; the result is the same for any number."""
    flags.add_argument("--workers", type=at_least(1), default=1, metavar="N", help="processes; default: 1")
