"""A stage of the job: made under a temporary name, renamed when whole, skipped when it is there already."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import write_whole

STAMP = "settings.json"
"""File that records the settings a finished stage was made with."""

Settings = dict[str, Any]


def write_stamp(directory: Path, settings: Settings) -> None:
    """Record what ``directory`` was made with."""
    write_whole(directory / STAMP, json.dumps(settings, indent=1, sort_keys=True) + "\n")


def read_stamp(directory: Path) -> Settings | None:
    """What ``directory`` was made with; None where it is absent or not finished."""
    try:
        stamp = json.loads((directory / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return stamp if isinstance(stamp, dict) else None


def differing(old: Settings, new: Settings) -> list[str]:
    """The settings in which two stamps differ, as ``name: new, was old``."""
    before, after = _flat(old), _flat(new)
    names = sorted(before.keys() | after.keys())
    changed = [name for name in names if before.get(name) != after.get(name)]
    return [f"{name}: {_short(after.get(name))}, was {_short(before.get(name))}" for name in changed]


def _flat(settings: Settings) -> Settings:
    flat: Settings = {}
    for name, value in settings.items():
        flat.update(_flat(value) if isinstance(value, dict) else {name: value})
    return flat


def _short(value: Any) -> str:
    """A fingerprint is told from another by its beginning."""
    text = str(value)
    return text if len(text) <= 24 else text[:12] + "…"


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Create ``directory`` and keep a second job out of it; a claim ends with its process, however that ends.

    Raises:
        UserError: another job has it, or it cannot be created.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UserError(f"{directory}: cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UserError(f"{directory}: another job is at work there; wait for it or give another --out") from None
    finally:
        os.close(handle)


def make_once(directory: Path, settings: Settings, make: Callable[[Path], None]) -> bool:
    """Let ``make`` fill ``directory`` unless it is there with the same settings; True if it was made now."""
    settings = json.loads(json.dumps(settings))
    if read_stamp(directory) == settings:
        return False
    partial = directory.with_name(directory.name + ".partial")
    for old in (partial, directory):
        shutil.rmtree(old, ignore_errors=True)
    partial.mkdir(parents=True)
    make(partial)
    write_stamp(partial, settings)
    os.replace(partial, directory)
    return True
