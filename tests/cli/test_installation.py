"""The package as an index would give it: sdist and wheel hold the same, and an environment without the checkout works.

The environment sees the installed dependencies of this one through its path, so pip finds them and downloads nothing;
the entries of the path that lead to a checkout are left behind, since Python reads them from no second directory.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests import toy
from tests.breaks.checking import copy_of_tracked_files

ROOT = Path(__file__).resolve().parents[2]
BUILD = "import setuptools.build_meta as backend; backend.build_sdist('dist'); backend.build_wheel('dist')"
TRAINING = ["--arch", "admin_transformer", *toy.TINY_MODEL, *toy.RECIPE, "--max-update", "2", "--save-dir", "run"]
SMALL_ANALYSIS = (
    "--encoder-layers 2 --decoder-layers 1 --encoder-embed-dim 8 --encoder-ffn-embed-dim 16 --decoder-ffn-embed-dim 16 "
    "--encoder-attention-heads 2 --decoder-attention-heads 2 --sentences 2 --length 4 --models 1"
).split()
WITHOUT_MATPLOTLIB = "import sys; sys.modules['matplotlib'] = None\n"
"""Every import of it fails, as if it were not installed; Python runs such a line of a path file when it starts."""

# Building takes its time; tests/cli/test_user_dir.py is quicker with a wheel that it only unpacks.
pytestmark = pytest.mark.slow


def called(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command in an environment that names no checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "VIRTUAL_"))}
    return subprocess.run(list(map(str, words)), cwd=cwd, env=kept, capture_output=True, text=True, check=False)


def output(*words: str | Path, cwd: Path) -> str:
    """What a command prints that has to succeed."""
    done = called(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist and the wheel, built from a copy because the build writes beside the sources."""
    tree = tmp_path_factory.mktemp("tree")
    copy_of_tracked_files(ROOT, tree)
    output(sys.executable, "-c", BUILD, cwd=tree)
    return tree / "dist"


@pytest.fixture(scope="module")
def environment(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the package from the wheel, and pip; nothing was asked of an index."""
    directory = tmp_path_factory.mktemp("environment")
    output(sys.executable, "-m", "venv", "--without-pip", ".", cwd=directory)
    own = sysconfig.get_path("purelib", vars={"base": str(directory)})
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    path = "".join(f"{name}\n" for name in sorted(dependencies))
    Path(own, "dependencies.pth").write_text(path + WITHOUT_MATPLOTLIB, encoding="utf-8")
    pip = [directory / "bin/python", "-m", "pip", "--isolated", "--disable-pip-version-check", "install", "-q"]
    offline = ["--no-index", "--find-links", distributions, "--only-binary", ":all:"]
    # The checkout, too, is found on the path, and would do.
    output(*pip, *offline, "--ignore-installed", "--no-deps", "fairseq-deep", cwd=directory)
    # What the package requires is installed, or pip fails: it has no index to ask.
    output(*pip, *offline, "fairseq-deep", cwd=directory)
    return directory


def contents(wheel: Path) -> dict[str, bytes]:
    """Files of a wheel by name, without the record of their checksums."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def test_wheel_of_the_sdist_is_that_of_the_checkout(distributions: Path, tmp_path: Path) -> None:
    (sdist,), (wheel,) = distributions.glob("*.tar.gz"), distributions.glob("*.whl")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    output(sys.executable, "-c", BUILD, cwd=unpacked)
    (again,) = (unpacked / "dist").glob("*.whl")
    assert again.name == wheel.name
    assert contents(again) == contents(wheel)


def test_sdist_has_what_its_tests_need(distributions: Path, tmp_path: Path) -> None:
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    missing = {name for name in tracked.splitlines() if (ROOT / name).is_file()} - held
    assert {name for name in missing if not re.match(r"\.ci/|\.git", name)} == set()


def test_package_is_not_the_checkout(environment: Path, tmp_path: Path) -> None:
    where = Path(output(environment / "bin/python", "-m", "fairseq_plugins", cwd=tmp_path).strip())
    assert where.is_relative_to(environment)
    assert output(environment / "bin/fairseq-deep", "--help", cwd=tmp_path).startswith("usage: fairseq-deep")


@pytest.mark.parametrize("command", ["fairseq-deep", "fairseq-train"])
def test_training(environment: Path, tmp_path: Path, toy_data: Path, command: str) -> None:
    python = environment / "bin/python"
    user_dir = output(python, "-m", "fairseq_plugins", cwd=tmp_path).strip()
    words = {
        "fairseq-deep": [environment / "bin/fairseq-deep", "train", toy_data],
        "fairseq-train": [python, "-m", "fairseq_cli.train", toy_data, "--user-dir", user_dir],
    }[command]
    output(*words, *TRAINING, cwd=tmp_path)
    assert (tmp_path / "run" / "checkpoint_last.pt").is_file()


def test_plots_without_matplotlib(environment: Path, tmp_path: Path) -> None:
    """One line says what to install, and the numbers are there."""
    words = ["diagnose", "similarity", "pre_ln", "--output", "figures", *SMALL_ANALYSIS]
    done = called(environment / "bin/fairseq-deep", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (said,) = [line for line in done.stderr.splitlines() if "matplotlib" in line]
    assert "pip install 'fairseq-deep[plots]'" in said
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"similarity.csv"}
