"""Where the configurations are, installed or in a checkout, and which commit of this package is at work."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fairseq_plugins.errors import UserError, nearest

PACKAGE = Path(__file__).resolve().parents[1]
CONFIGS = PACKAGE / "configs" if (PACKAGE / "configs").is_dir() else PACKAGE.parent / "configs"
"""The YAML files: setup.py puts ``configs/`` of the repository into the installed package."""


def checkout() -> Path | None:
    """The top of the repository that this package is imported from; None for an installed package, without scripts."""
    above = PACKAGE.parent
    return above if (above / "scripts" / "train.sh").is_file() else None


def configuration_file(given: Path) -> Path:
    """A YAML file by its path, or by its name in ``configs/``, as ``iwslt14_de_en/admin_6e6d``.

    Raises:
        UserError: there is none.
    """
    for path in (given, CONFIGS / f"{str(given).removesuffix('.yaml')}.yaml"):
        if path.is_file():
            return path
    beside = sorted(str(each) for each in given.parent.glob("*.yaml")) if given.parent.is_dir() else []
    names = sorted(name_of(each) for each in CONFIGS.glob("*/*.yaml"))
    raise UserError(f"{given}: no such file{nearest(str(given), beside) or nearest(str(given), names)}")


def name_of(config: Path) -> str:
    """Path under ``configs/`` without ending; the whole path for a file elsewhere."""
    path = config.resolve().with_suffix("")
    return str(path.relative_to(CONFIGS)) if path.is_relative_to(CONFIGS) else str(path)


def commit() -> str | None:
    """The commit of this package's checkout, with ``+`` where files of it were changed since; None without one."""
    top = checkout()
    if top is None:
        # A virtual environment may lie in a repository of its user, whose commit would say nothing.
        return None
    command = ["git", "-C", str(top), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
