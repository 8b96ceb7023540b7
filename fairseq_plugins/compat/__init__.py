"""fairseq as it is today, mended from outside: one module a defect, each named after what it mends.

Every module here has one ``apply()``, which may be called any number of times and does nothing where the defect is
absent. :func:`apply` runs at import of the plugin, so a spawned worker, which imports the plugin anew through
``--user-dir``, is mended too. fairseq's functions are wrapped where they are looked up, never copied.
"""

from __future__ import annotations

from importlib import import_module
from typing import Tuple

MODULES: Tuple[str, ...] = (
    "refused_checkpoints",
    "dropped_sentences",
    "inexact_resume",
)
"""In the order in which they are applied."""


def apply() -> None:
    """Mend every known defect of the installed fairseq; harmless when repeated."""
    for name in MODULES:
        import_module(f"{__name__}.{name}").apply()
