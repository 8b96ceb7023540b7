"""The mistakes of ``listed.yaml``, made one by one in a copy of the checkout, and what the copy's tests say."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = ("tests/breaks", "tests/cli/test_installation.py")
"""Tests that fail in every copy: a fragment is missing there, and git knows nothing of it."""
PASSED, FAILED, NOTHING_CHOSEN = 0, 1, 5
"""Exit codes of pytest."""
_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", flags=re.MULTILINE)
FURTHER = {
    "core": ("tests/equivalence", "tests/contract"),
    "methods": ("tests/contract",),
    "patches": ("tests/faults",),
}
"""What all models and trainings promise, by the part of the package that it rests on."""


@dataclass(frozen=True)
class Break:
    """A deliberate mistake.

    Attributes:
        name: a word for ``--only`` and the table.
        file: the file that is broken.
        fragment: what the mistake replaces; it occurs exactly once.
        replacement: the mistake.
        what: the mistake in words.
        tests: where a test is likely to notice it; these run first.
    """

    name: str
    file: str
    fragment: str
    replacement: str
    what: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What the tests said of one break.

    Attributes:
        broken: the break.
        seconds: until a test failed, or all had passed.
        caught_by: the test that failed; empty where none did.
        unclear: the end of pytest's output, where it could not run; such a break says nothing of the tests.
    """

    broken: Break
    seconds: float
    caught_by: str = ""
    unclear: str = ""


def likely_tests(root: Path, file: str) -> tuple[str, ...]:
    """Where a test is likely to notice a change of ``file``: the file of its name, else the folder of its part."""
    part = Path(file).relative_to("fairseq_plugins")
    folders = [Path("tests", *part.parts[:depth]) for depth in reversed(range(len(part.parts)))]
    candidates = [*(folder / f"test_{part.stem}.py" for folder in folders), *folders]
    nearest = [str(path) for path in candidates if (root / path).exists()][:1]
    return (*nearest, *FURTHER.get(part.parts[0], ()))


def listed() -> dict[str, Break]:
    """The mistakes of the file, by name."""
    mistakes = yaml.safe_load(Path(__file__).with_name("listed.yaml").read_text(encoding="utf-8"))
    paths = {name: f"fairseq_plugins/{mistake.pop('file')}" for name, mistake in mistakes.items()}
    return {
        name: Break(name, paths[name], tests=likely_tests(ROOT, paths[name]), **mistake)
        for name, mistake in mistakes.items()
    }


def copy_of_tracked_files(root: Path, copy: Path) -> None:
    """Copy what git tracks, as it stands in the working tree."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (root / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, copy / name)


@contextlib.contextmanager
def made(broken: Break, copy: Path) -> Iterator[None]:
    """The copy with the mistake in it; a ValueError if the fragment does not occur exactly once."""
    file = copy / broken.file
    whole = file.read_text(encoding="utf-8")
    if whole.count(broken.fragment) != 1:
        raise ValueError(f"{broken.name}: the fragment occurs {whole.count(broken.fragment)} times in {broken.file}")
    file.write_text(whole.replace(broken.fragment, broken.replacement), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(whole, encoding="utf-8")


def run_tests(copy: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run fast tests of the copy, which import the package of the copy."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no", "-m", "not slow"]
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *arguments], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )


def check(broken: Break, copy: Path) -> Outcome:
    """Break the copy and run its tests until one fails: those of the break, then the others."""
    start = time.monotonic()
    with made(broken, copy):
        for arguments in ([*broken.tests], ["tests", *(f"--ignore={path}" for path in broken.tests)]):
            done = run_tests(copy, [*(f"--ignore={path}" for path in LEFT_OUT), *arguments])
            seconds = time.monotonic() - start
            failed = _FAILED_TEST.search(done.stdout)
            if done.returncode == FAILED and failed:
                return Outcome(broken, seconds, caught_by=failed[1])
            if done.returncode not in (PASSED, NOTHING_CHOSEN):
                return Outcome(broken, seconds, unclear="\n".join((done.stdout + done.stderr).splitlines()[-15:]))
    return Outcome(broken, seconds)


def table(outcomes: Sequence[Outcome]) -> str:
    """One row for each break."""
    lines = ["| break | what is wrong | caught by | seconds |", "|---|---|---|---:|"]
    for outcome in outcomes:
        by = f"`{outcome.caught_by}`" if outcome.caught_by else "could not run" if outcome.unclear else "**no test**"
        lines.append(f"| {outcome.broken.name} | {outcome.broken.what} | {by} | {outcome.seconds:.0f} |")
    return "\n".join(lines)
