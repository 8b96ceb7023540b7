"""``fairseq-preprocess`` in this process, for the tests of what is patched in it."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path
from typing import Any

import pytest
from fairseq import options
from fairseq_cli import preprocess

PAIR = ("-s", "de", "-t", "en")


def binarise(*flags: Any) -> None:
    """Run the command, patched as the plugin does."""
    preprocess.main(options.get_preprocessing_parser().parse_args([str(flag) for flag in flags]))


def binarise_as_stock(monkeypatch: pytest.MonkeyPatch, *flags: Any) -> None:
    """Run the command as fairseq has it."""
    with monkeypatch.context() as patched:
        patched.setattr(preprocess, "main", inspect.unwrap(preprocess.main))
        try:
            binarise(*flags)
        finally:
            for handler in list(preprocess.logger.handlers):
                if isinstance(handler, logging.FileHandler):
                    preprocess.logger.removeHandler(handler)
                    handler.close()


def contents(directory: Path) -> dict[str, bytes]:
    """Every file but the log, which names the directory."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "preprocess.log"}
