"""Run the scripts like a user, and inspect their files."""

import csv
import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = """SOURCE TARGET CODES JOINED SIZE DRY_RUN ARCHIVE_DIR CACHE CHECKSUMS VARIANT JOINT_CODES
VOCABULARY_THRESHOLD APOSTROPHE VALID TEST_SETS"""


def environment(**settings: str) -> dict[str, str]:
    """The environment with ``settings`` and without variables that scripts read."""
    kept = {name: value for name, value in os.environ.items() if name not in SETTINGS.split()}
    return {**kept, "PYTHONPATH": str(ROOT), "WORKERS": "1", **settings}


def run(script: str, *arguments: object, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a script of ``scripts/`` with settings to its end."""
    command = [str(ROOT / "scripts" / script), *map(str, arguments)]
    return subprocess.run(command, env=environment(**settings), capture_output=True, text=True)


def completed(script: str, *arguments: object, **settings: str) -> str:
    """Standard output of a script, which must succeed."""
    ended = run(script, *arguments, **settings)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


def dry_run(script: str, *arguments: object, **settings: str) -> list[list[str]]:
    """The words of each command that a script would run; ``deep NAME`` for a command of fairseq-deep."""
    printed = completed(script, *arguments, DRY_RUN="1", **settings).splitlines()
    return [shlex.split(line)[2:] for line in printed if " -m fairseq_plugins." in line]


def refusal(script: str, *arguments: object, **settings: str) -> str:
    """The one-line error of a script."""
    ended = run(script, *arguments, **settings)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    [line] = ended.stderr.removesuffix("\n").split("\n")
    return line.removeprefix("error: ")


def wait_for(path: Path, job: subprocess.Popen[Any]) -> None:
    """Wait until a job has made a file; fails if it ends before."""
    while not path.exists():
        assert job.poll() is None, (f"it ended before {path} was there", *job.communicate())
        time.sleep(0.005)


def report_of(out: Path) -> list[dict[str, str]]:
    """A row for each training of the report that a chain has made."""
    with (out / "report" / "report.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below ``directory``, by its path."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def times(directory: Path) -> dict[str, int]:
    """Time of each file below ``directory``, except the lock, which every call opens."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path): path.stat().st_mtime_ns for path in files}
