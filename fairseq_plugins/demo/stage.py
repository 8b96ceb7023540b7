"""A stage of the job: made under a temporary name, renamed when whole, skipped when it is there already."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Callable

STAMP = "settings.json"
"""File that records the settings a finished stage was made with."""

Settings = dict[str, Any]


def write_whole(path: Path, text: str) -> None:
    """Write a text file that is never seen half-written."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8", newline="\n")
    os.replace(partial, path)


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
    names = sorted(old.keys() | new.keys())
    return [f"{name}: {new.get(name)}, was {old.get(name)}" for name in names if old.get(name) != new.get(name)]


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
