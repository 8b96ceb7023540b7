"""The package as an index would give it, and as a user directory: from the checkout, a wheel, and an environment.

Sdist and wheel are built once. The environment sees the installed dependencies of this one through its path, so pip
finds them and downloads nothing; the entries of the path that lead to a checkout are left behind, since Python reads
them from no second directory.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from argparse import Namespace
from pathlib import Path

import pytest
from fairseq import utils
from fairseq.models import ARCH_MODEL_REGISTRY

import fairseq_plugins
from tests import toy
from tests.breaks.checking import copy_of_tracked_files

PACKAGE = Path(fairseq_plugins.__file__).parent
ROOT = PACKAGE.parent
BUILD = "import setuptools.build_meta as backend; backend.build_sdist('dist'); backend.build_wheel('dist')"
TRAINING = ["--arch", "admin_transformer", *toy.TINY_MODEL, *toy.RECIPE, "--max-update", "2", "--save-dir", "run"]
SMALL_ANALYSIS = (
    "--encoder-layers 2 --decoder-layers 1 --encoder-embed-dim 8 --encoder-ffn-embed-dim 16 --decoder-ffn-embed-dim 16 "
    "--encoder-attention-heads 2 --decoder-attention-heads 2 --sentences 2 --length 4 --models 1"
).split()
WITHOUT_MATPLOTLIB = "import sys; sys.modules['matplotlib'] = None\n"
"""Every import of it fails, as if it were not installed; Python runs such a line of a path file when it starts."""
IMPORTED_AND_USER_DIR = """
import sys
import fairseq_plugins
from argparse import Namespace
from fairseq import utils
utils.import_user_module(Namespace(user_dir=sys.argv[1]))
from fairseq.models import ARCH_MODEL_REGISTRY
print(sys.modules["fairseq_plugins"] is fairseq_plugins, "admin_transformer" in ARCH_MODEL_REGISTRY)
"""
SPAWN = """
import multiprocessing
import fairseq_plugins

def registrations():
    return fairseq_plugins.register.cache_info().currsize

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(registrations(), pool.apply(registrations))
"""
FIND = """
from pathlib import Path
from fairseq_plugins.pipeline.checkout import checkout, commit, configuration_file
print(configuration_file(Path("iwslt14_de_en/admin_6e6d")), checkout(), commit())
"""


def called(*words: str | Path, cwd: Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command in an environment that names no checkout, or that finds modules in ``path`` first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "VIRTUAL_"))}
    kept |= {"PYTHONPATH": str(path)} if path else {}
    return subprocess.run(list(map(str, words)), cwd=cwd, env=kept, capture_output=True, text=True, check=False)


def output(*words: str | Path, cwd: Path, path: Path | None = None) -> str:
    """What a command prints that has to succeed."""
    done = called(*words, cwd=cwd, path=path)
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
def site(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory like site-packages with the wheel in it, unpacked."""
    directory = tmp_path_factory.mktemp("site")
    (wheel,) = distributions.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(directory)
    return directory


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


@pytest.mark.slow
def test_wheel_of_the_sdist_is_that_of_the_checkout(distributions: Path, tmp_path: Path) -> None:
    (sdist,), (wheel,) = distributions.glob("*.tar.gz"), distributions.glob("*.whl")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    output(sys.executable, "-c", BUILD, cwd=unpacked)
    (again,) = (unpacked / "dist").glob("*.whl")
    assert again.name == wheel.name
    assert contents(again) == contents(wheel)


def test_distributions_hold_the_package_and_the_tests(distributions: Path) -> None:
    (sdist,), (wheel,) = distributions.glob("*.tar.gz"), distributions.glob("*.whl")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = {name for name in tracked.splitlines() if (ROOT / name).is_file()}
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in files - held if not re.match(r"\.ci/|\.git", name)} == set()
    package = {name for name in files if name.startswith("fairseq_plugins/")}
    configs = {f"fairseq_plugins/{path.relative_to(ROOT)}" for path in ROOT.glob("configs/*/*.yaml")}
    assert {name for name in contents(wheel) if name.startswith("fairseq_plugins/")} == package | configs


def test_wheel_says_what_it_is(site: Path) -> None:
    (info,) = site.glob("fairseq_deep-*.dist-info")
    metadata = (info / "METADATA").read_text(encoding="utf-8").splitlines()
    requirements = {re.split(r"[=>;]", line.split(": ")[1])[0] for line in metadata if line.startswith("Requires-Dist")}
    assert {"fairseq-fixed", "torch", "sacrebleu", "sacremoses", "sentencepiece", "subword-nmt"} <= requirements
    (python_versions,) = (line.split(": ")[1] for line in metadata if line.startswith("Requires-Python"))
    assert set(python_versions.split(",")) == {">=3.10", "<3.14"}
    assert "fairseq-deep = fairseq_plugins.cli.main:run" in (info / "entry_points.txt").read_text(encoding="utf-8")
    version = info.name[len("fairseq_deep-") : -len(".dist-info")]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_path_of_the_user_directory(site: Path, tmp_path: Path) -> None:
    words = (sys.executable, "-m", "fairseq_plugins")
    assert output(*words, cwd=ROOT) == f"{PACKAGE}\n"
    assert output(*words, cwd=tmp_path, path=site) == f"{site / 'fairseq_plugins'}\n"


@pytest.mark.slow
def test_a_wheel_has_the_configurations_and_says_that_it_is_no_checkout(site: Path, tmp_path: Path) -> None:
    """Its directory may lie in a repository of its user, whose commit is not that of the package."""
    subprocess.run(["git", "init", "-q", str(site)], check=True)
    found = output(sys.executable, "-c", FIND, cwd=tmp_path, path=site)
    assert found == f"{site}/fairseq_plugins/configs/iwslt14_de_en/admin_6e6d.yaml None None\n"


def test_imported_and_given_as_user_dir() -> None:
    before = list(ARCH_MODEL_REGISTRY)
    utils.import_user_module(Namespace(user_dir=str(PACKAGE)))
    assert importlib.import_module("fairseq_plugins") is fairseq_plugins
    assert list(ARCH_MODEL_REGISTRY) == before


@pytest.mark.slow
def test_a_new_process_imports_it_once_and_a_spawned_worker_registers(tmp_path: Path) -> None:
    """The command itself registers late; a worker that it spawns has to do so on import."""
    found = output(sys.executable, "-c", IMPORTED_AND_USER_DIR, PACKAGE, cwd=tmp_path, path=ROOT)
    assert found.splitlines()[-1] == "True True"
    command = tmp_path / "fairseq-deep"
    command.write_text(SPAWN, encoding="utf-8")
    assert output(sys.executable, command, cwd=tmp_path, path=ROOT).split()[-2:] == ["0", "1"]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["fairseq-deep", "fairseq-train"])
def test_training(environment: Path, tmp_path: Path, toy_data: Path, command: str) -> None:
    """In the environment; fairseq is told the directory only, and imports the package from it."""
    python = environment / "bin/python"
    user_dir = output(python, "-m", "fairseq_plugins", cwd=tmp_path).strip()
    assert Path(user_dir).is_relative_to(environment)
    words = {
        "fairseq-deep": [environment / "bin/fairseq-deep", "train", toy_data],
        "fairseq-train": [python, "-m", "fairseq_cli.train", toy_data, "--user-dir", user_dir],
    }[command]
    output(*words, *TRAINING, cwd=tmp_path)
    assert (tmp_path / "run" / "checkpoint_last.pt").is_file()


@pytest.mark.slow
def test_plots_without_matplotlib(environment: Path, tmp_path: Path) -> None:
    """One line says what to install, and the numbers are there."""
    words = ["diagnose", "similarity", "pre_ln", "--output", "figures", *SMALL_ANALYSIS]
    done = called(environment / "bin/fairseq-deep", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (said,) = [line for line in done.stderr.splitlines() if "matplotlib" in line]
    assert "pip install 'fairseq-deep[plots]'" in said
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"similarity.csv"}
