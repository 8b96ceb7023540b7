"""Deep Transformers for fairseq: a user directory, to import or to pass to ``--user-dir``.

Importing the package patches fairseq and registers the methods with it. Some processes skip that: ``python -m
fairseq_plugins`` only prints a line, ``python -m fairseq_plugins.text`` works on text without fairseq, and
``fairseq-deep``, like other steps of the scripts, calls :func:`register` itself when needed.
"""

from __future__ import annotations

# Before all else: Ctrl-C ends a command quietly from here on.
from fairseq_plugins.process import LATER, print_utf_8

# isort: split
import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


@cache
def register() -> None:
    """Patch fairseq, then register every method with it; a second call does nothing.

    The imports are here because they import fairseq and torch, which takes seconds. Order matters: fairseq is patched
    before anything else looks at it.
    """
    print_utf_8()
    log_as_fairseq_does()
    with _without_collecting():
        from fairseq_plugins import patches

        patches.apply()

        from fairseq_plugins import (
            methods,  # noqa: F401  (registers every part and method)
            training,
        )
        from fairseq_plugins.core.families import register_architectures, require_architecture
        from fairseq_plugins.errors import install_hook
        from fairseq_plugins.observe import recorder
        from fairseq_plugins.observe.guard import installing as guard
        from fairseq_plugins.patches.misspelt_options import EXPLAINED
        from fairseq_plugins.search import settings

        register_architectures()
        EXPLAINED["--arch"] = require_architecture
        settings.register()
        training.register()
        guard.install()  # before the recorder, which makes flags of its settings
        recorder.register()
        install_hook()


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Let Python look for no garbage meanwhile: an import makes little, and looking takes a seventh of its time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def register_later() -> None:
    """:func:`register` in the middle of a command, which Ctrl-C ends at once meanwhile.

    Raises:
        UserError: fairseq cannot be imported.
    """
    from fairseq_plugins.process import at_once

    try:
        with at_once():
            register()
    except Exception as error:
        # A package whose import has failed is not in sys.modules; if fairseq is there, the bug is ours.
        if "fairseq" in sys.modules:
            raise
        from fairseq_plugins.errors import UserError

        message = f"fairseq cannot be imported ({type(error).__name__}: {error}); fairseq-deep doctor says why"
        raise UserError(message) from error


def log_as_fairseq_does() -> None:
    """Set up logging before fairseq is imported, as each of its commands does; no effect if it is set up already.

    Importing fairseq first would leave the root logger at DEBUG: one of its modules logs while it is imported.
    """
    logging.basicConfig(
        format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        level=os.environ.get("LOGLEVEL", "INFO").upper(),
        stream=sys.stdout,
    )
    # Every import logs a line about a package that only speech synthesis would use.
    for speech in ("text_to_speech", "frm_text_to_speech"):
        logging.getLogger(f"fairseq.tasks.{speech}").setLevel(logging.WARNING)


def __getattr__(name: str) -> Any:
    """Import :class:`Translator` when it is first asked for: most processes never do."""
    if name != "Translator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fairseq_plugins.translator.translate import Translator

    return Translator


if not LATER:
    register()
