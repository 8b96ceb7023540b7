"""The record that every check yields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

UPSTREAM = "https://github.com/facebookresearch/fairseq/issues/"


class Level(str, Enum):
    """How bad it is; training cannot start where there is an error."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Args:
        level: how bad it is.
        about: a package, a device, a module.
        says: what was found, and for a problem what happens because of it.
        cure: what to do about it.
        thread: where it is explained.
    """

    level: Level
    about: str
    says: str
    cure: str = ""
    thread: str = ""


@dataclass(frozen=True)
class Check:
    """A group of findings; ``run`` is not called where fairseq cannot be imported and ``needs_fairseq`` is set."""

    topic: str
    run: Callable[[], Iterable[Finding]]
    needs_fairseq: bool = False
