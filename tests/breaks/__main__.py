"""Break the package and see whether a test notices: ``python -m tests.breaks``.

The mistakes of ``listed.yaml`` are made one by one in a copy of the checkout. Exit code 1 where one was not caught.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = ("tests/breaks", "tests/cli/test_installation.py")
"""Tests that fail in every copy: a fragment is missing there, and git knows nothing of it."""
PASSED, FAILED, NOTHING_CHOSEN = 0, 1, 5
"""Exit codes of pytest."""
BESIDE = {"core": ("tests/equivalence", "tests/contract"), "methods": ("tests/contract",), "patches": ("tests/faults",)}
"""Tests of what all models and trainings promise, by the part of the package that the promise rests on."""


def likely_tests(root: Path, file: str) -> list[str]:
    """Where a test is likely to notice a change of ``file``: the file of its name, else the folder of its part."""
    part = Path(file.removeprefix("tools/"))  # the folders of tests do not have it
    folders = [Path("tests", *part.parts[:depth]) for depth in reversed(range(len(part.parts)))]
    candidates = [*(folder / f"test_{part.stem}.py" for folder in folders), *folders]
    nearest = next(str(path) for path in candidates if (root / path).exists())
    return [nearest, *BESIDE.get(part.parts[0], ())]


def listed() -> dict[str, dict[str, str]]:
    """The mistakes, by name: file below the package, fragment, which occurs once, replacement, and what is wrong."""
    mistakes: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("listed.yaml").read_text("utf-8"))
    return mistakes


def copy_of_tracked_files(root: Path, copy: Path) -> None:
    """Copy what git tracks, as it stands in the working tree."""
    tracked = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=True).stdout
    for name in filter(None, tracked.decode().split("\0")):
        if (root / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, copy / name)


def check(broken: Mapping[str, str], copy: Path) -> tuple[bool, str]:
    """Break the copy and run its fast tests until one fails: the likely ones, then the others.

    Returns whether the break was caught, and by which test; else why not.
    """
    file, likely = copy / "fairseq_plugins" / broken["file"], likely_tests(copy, broken["file"])
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no", "-m", "not slow"]
    command += [f"--ignore={path}" for path in LEFT_OUT]
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole.replace(broken["fragment"], broken["replacement"]), encoding="utf-8")
    try:
        for chosen in (likely, ["tests", *(f"--ignore={path}" for path in likely)]):
            done = subprocess.run([*command, *chosen], cwd=copy, env=environment, capture_output=True, text=True)
            if done.returncode not in (PASSED, NOTHING_CHOSEN):
                found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, flags=re.MULTILINE)
                said = found[1] if found else done.stderr[-500:]
                return (True, said) if done.returncode == FAILED else (False, f"the tests cannot run: {said}")
    finally:
        file.write_text(whole, encoding="utf-8")
    return False, "no test"


def main() -> int:
    """Check the breaks, a row of a table each; 1 if one survived."""
    breaks = listed()
    flags = argparse.ArgumentParser(prog="python -m tests.breaks", description=__doc__)
    flags.add_argument("--only", nargs="+", metavar="NAME", choices=breaks, default=breaks, help="these (default: all)")
    names = flags.parse_args().only
    caught = 0
    print("| break | what is wrong | caught by |\n|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="breaks-") as copy:
        copy_of_tracked_files(ROOT, Path(copy))
        for name in names:
            is_caught, said = check(breaks[name], Path(copy))
            caught += is_caught
            print(f"| {name} | {breaks[name]['what']} | {said if is_caught else f'**{said}**'} |", flush=True)
    print(f"\n{caught} of {len(names)} breaks caught")
    return 0 if caught == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
