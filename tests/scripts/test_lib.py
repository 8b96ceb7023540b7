"""What every script shares: the Python that it takes, and one line with code 2 for what cannot be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.scripts.running import ROOT, environment, refusal


def ended(commands: str, *arguments: object, **settings: str) -> tuple[int, str]:
    """Exit code and standard error of these commands behind lib.sh; the arguments are $2, $3, ..."""
    script = f'set -euo pipefail; source "$1/scripts/lib.sh"; {commands}'
    words = ["bash", "-c", script, "bash", str(ROOT), *map(str, arguments)]
    done = subprocess.run(words, env=environment(**settings), capture_output=True, text=True)
    return done.returncode, done.stderr


def test_a_directory_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "below"
    line = f"error: {below}: cannot be created: Not a directory\n"
    assert ended('claim "$2"', below) == (2, line)


def test_a_directory_that_cannot_be_locked(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    assert ended('claim "$2"', tmp_path) == (2, f"error: {tmp_path}: cannot be written\n")


@pytest.mark.parametrize("script", ["prepare.sh", "train.sh", "compare.sh", "prepare_multi30k.sh"])
def test_dry_run_is_a_choice(script: str) -> None:
    assert refusal(script, "out", DRY_RUN="yes") == "unknown DRY_RUN 'yes'; legal values: 0 1"


def test_the_python_is_the_one_asked_for_the_active_one_the_checkouts_or_the_systems(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "lib.sh", tmp_path / "scripts")

    def chosen(**settings: str) -> str:
        kept = {name: value for name, value in environment().items() if name not in ("PYTHON", "VIRTUAL_ENV")}
        command = ["bash", "-c", 'source scripts/lib.sh; printf %s "$PYTHON"']
        return subprocess.check_output(command, cwd=tmp_path, env={**kept, **settings}, text=True)

    assert chosen() == "python3"
    own = tmp_path / ".venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.touch(mode=0o644)  # as make leaves it when it is interrupted
    assert chosen() == "python3"
    own.chmod(0o755)
    assert chosen() == str(own)
    assert chosen(VIRTUAL_ENV="/an active one") == "/an active one/bin/python"
    assert chosen(VIRTUAL_ENV="/an active one", PYTHON="/asked for") == "/asked for"
