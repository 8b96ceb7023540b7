"""The record that every check yields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

UPSTREAM = "https://github.com/facebookresearch/fairseq/issues/"


class Level(str, Enum):
    """Severity; with an error, training cannot start."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Args:
        level: severity.
        about: subject: a package, a device, a module.
        says: the result and, for a problem, its consequence.
        cure: how to fix it.
        thread: address of an explanation.
    """

    level: Level
    about: str
    says: str
    cure: str = ""
    thread: str = ""


@dataclass(frozen=True)
class Check:
    """A group of findings; ``run`` is not called if ``needs_fairseq`` is set and fairseq cannot be imported."""

    topic: str
    run: Callable[[], Iterable[Finding]]
    needs_fairseq: bool = False
