"""Transformers that train deep: a fairseq user directory, to be imported or handed to ``--user-dir``.

Importing the package mends fairseq and makes the methods known to it. Some processes are spared that import:
``python -m fairseq_plugins`` prints a line, ``python -m fairseq_plugins.text`` works on text and needs no fairseq,
and ``fairseq-deep``, like other steps of the scripts, calls :func:`register` itself where it needs it.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import cache
from pathlib import Path

BY_THEMSELVES = (
    "cli",
    "text",
    "demo.archives",
)
"""Modules that, run with ``python -m``, call :func:`register` where they need it."""


@cache
def register() -> None:
    """Mend fairseq, then register every method with it; a second call does nothing.

    The imports stand here because they bring fairseq and torch, which take seconds. Order matters: what fairseq
    gets wrong is mended before anything else looks at it.
    """
    _log_as_fairseq_does()
    from fairseq_plugins import patches

    patches.apply()

    from fairseq_plugins import (
        methods,  # noqa: F401  (registers every part and method)
        search,
        training,
    )
    from fairseq_plugins.core.families import register_architectures, require_architecture
    from fairseq_plugins.errors import install_hook
    from fairseq_plugins.observe import guard, recorder
    from fairseq_plugins.patches.misspelt_options import EXPLAINED

    register_architectures()
    EXPLAINED["--arch"] = require_architecture
    search.register()
    training.register()
    guard.register()  # before the recorder, which makes flags of its settings
    recorder.register()
    install_hook()


def _log_as_fairseq_does() -> None:
    """Set up logging before fairseq is imported, as each of its commands does; no effect where it is set up.

    Importing fairseq first would leave the root logger at DEBUG: one of its modules logs while it is imported.
    """
    logging.basicConfig(
        format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        level=os.environ.get("LOGLEVEL", "INFO").upper(),
        stream=sys.stdout,
    )
    # At import, of every command, a line about a package that only speech synthesis would use.
    for speech in ("text_to_speech", "frm_text_to_speech"):
        logging.getLogger(f"fairseq.tasks.{speech}").setLevel(logging.WARNING)


def _registers_later() -> bool:
    """Whether this process is one of those that call :func:`register` themselves, or need it never.

    ``sys.orig_argv`` is what the interpreter was started with. A worker spawned by such a process was started
    differently (its ``sys.argv`` is a copy of the parent's and would not tell), so it registers on import.
    """
    started_with = sys.orig_argv[1:]
    by_itself = [["-m", f"{__name__}.{module}"] for module in BY_THEMSELVES]
    if started_with == ["-m", __name__] or started_with[:2] in by_itself:
        return True
    return bool(started_with) and Path(started_with[0]).stem == "fairseq-deep"


if _registers_later():
    from fairseq_plugins.outcome import end_quietly_when_interrupted

    end_quietly_when_interrupted()
else:
    register()
