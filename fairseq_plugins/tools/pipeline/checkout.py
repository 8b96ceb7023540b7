"""Find the configurations, in a checkout or an installation, the commit of this package, and its user directory."""

import subprocess
from pathlib import Path

from fairseq_plugins.errors import UserError, nearest

PACKAGE = Path(__file__).resolve().parents[2]
USER_DIR = str(PACKAGE)
CONFIGS = PACKAGE / "configs" if (PACKAGE / "configs").is_dir() else PACKAGE.parent / "configs"
"""The YAML files: setup.py puts ``configs/`` of the repository into the installed package."""


def checkout() -> Path | None:
    """Root of the repository that this package is imported from; None for an installed package."""
    above = PACKAGE.parent
    return above if (above / "scripts" / "lib.sh").is_file() else None


def configuration_file(requested: Path) -> Path:
    """A YAML file by its path, or its name in ``configs/``, such as ``iwslt14_de_en/admin_6e6d``; or a UserError."""
    if requested.is_file() and requested.suffix != ".yaml":
        raise UserError(f"{requested}: the name of a configuration must end in .yaml")
    for path in (requested, CONFIGS / f"{str(requested).removesuffix('.yaml')}.yaml"):
        if path.is_file():
            return path
    names = [*map(str, requested.parent.glob("*.yaml")), *sorted(map(name_of, CONFIGS.glob("*/*.yaml")))]
    raise UserError(f"{requested}: no such file{nearest(str(requested), names)}")


def name_of(config: Path) -> str:
    """Path under ``configs/`` without ``.yaml``; the whole path for a file elsewhere."""
    path = config.resolve().with_suffix("")
    return str(path.relative_to(CONFIGS)) if path.is_relative_to(CONFIGS) else str(path)


def commit() -> str | None:
    """Commit of this package's checkout, with ``+`` for uncommitted changes; None without a checkout."""
    top = checkout()
    if top is None:
        # A virtual environment may be inside another repository, whose commit is not ours.
        return None
    command = ["git", "-C", str(top), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def refuse_other_user_dir(given: str | None) -> None:
    """Raise a UserError for a user directory other than this package."""
    if given is None or Path(given).resolve() == PACKAGE:
        return
    if (Path(given) / "core" / "designed.py").is_file():
        raise UserError(f"--user-dir {given}: another copy of this package than {PACKAGE}; leave it out")
    raise UserError(
        f"fairseq-deep gives fairseq its own user directory and cannot take '{given}' as well: "
        f"write `import fairseq_plugins` in {Path(given) / '__init__.py'} and use fairseq's command "
        f"(fairseq-train, ...) with --user-dir {given}"
    )
