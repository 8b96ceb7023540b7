"""What every script shares: a directory or a setting that cannot be is one line, and code 2."""

from __future__ import annotations

import signal
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
    line = f"error: {below}: cannot be made: Not a directory\n"
    assert ended('claim "$2"', below) == (2, line)
    assert ended('make_once "$2/stage" touch', below) == (2, line)


def test_a_directory_that_cannot_be_locked(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    assert ended('claim "$2"', tmp_path) == (2, f"error: {tmp_path}: cannot be written\n")


@pytest.mark.parametrize("obstacle", ["a directory", "a full disk"])
def test_settings_that_cannot_be_written(tmp_path: Path, obstacle: str) -> None:
    if obstacle == "a directory":
        (tmp_path / "settings.partial").mkdir()
    else:
        (tmp_path / "settings.partial").symlink_to("/dev/full")
    code, said = ended('remember_settings "$2" SIZE=3', tmp_path)
    assert (code, said) == (2, f"error: {tmp_path}/settings: cannot be written; is the disk full?\n")
    assert not (tmp_path / "settings").exists()


def test_a_stage_that_was_killed_is_made_again_and_a_whole_one_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "target"
    made = 'stage() { echo half >>"$1"; $BETWEEN; echo whole >>"$1"; }; make_once "$2" stage'
    code, _ = ended(f"BETWEEN='kill -KILL '$$; {made}", target)
    assert code == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["target.partial"]
    assert ended(f"BETWEEN=true; {made}", target) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert target.read_text() == "half\nwhole\n"
    target.write_text("as it is")
    assert ended(f"BETWEEN=true; {made}", target) == (0, "")
    assert target.read_text() == "as it is"


def test_settings_are_remembered_and_their_change_refused(tmp_path: Path) -> None:
    assert ended('remember_settings "$2" SIZE=3', tmp_path) == (0, "")
    assert (tmp_path / "settings").read_text() == "SIZE=3\n"
    code, said = ended('remember_settings "$2" SIZE=4', tmp_path)
    assert code == 2
    assert "(SIZE=4; was SIZE=3)" in said


@pytest.mark.parametrize("script", ["prepare.sh", "train.sh", "compare.sh", "prepare_multi30k.sh"])
def test_dry_run_is_a_choice(script: str) -> None:
    assert refusal(script, "out", DRY_RUN="yes") == "unknown DRY_RUN 'yes'; legal values: 0 1"
