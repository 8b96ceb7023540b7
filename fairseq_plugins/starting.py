"""The first lines of this package that run in any process: how was it started, and what ends it early?"""

from __future__ import annotations

import os
import sys

from fairseq_plugins.interrupts import end_quietly

PACKAGE = "fairseq_plugins"
BY_THEMSELVES = (
    "cli",
    "text",
    "demo.archives",
)
"""Modules that call :func:`fairseq_plugins.register` themselves when run with ``python -m``."""


def registers_later() -> bool:
    """Return whether this process calls :func:`fairseq_plugins.register` itself, or never needs it.

    ``sys.orig_argv`` is the interpreter's own command line. A worker spawned by such a process was started differently
    (its ``sys.argv`` is a copy of the parent's and would not tell), so it registers on import.
    """
    started_with = sys.orig_argv[1:]
    by_itself = [["-m", f"{PACKAGE}.{module}"] for module in BY_THEMSELVES]
    if started_with == ["-m", PACKAGE] or started_with[:2] in by_itself:
        return True
    return bool(started_with) and os.path.splitext(os.path.basename(started_with[0]))[0] == "fairseq-deep"


def end_with_torchrun() -> None:
    """Let a rank end with the torchrun that has started it, which may be killed while the rank still imports."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        from fairseq_plugins.orphans import end_with

        end_with(os.getppid())


LATER = registers_later()
if LATER:
    end_quietly()
    end_with_torchrun()
