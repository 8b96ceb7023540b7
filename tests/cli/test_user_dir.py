"""The package as a user directory: from a checkout, from a wheel, imported as well, and in a spawned worker."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import pytest
from fairseq import utils
from fairseq.models import ARCH_MODEL_REGISTRY

import fairseq_plugins

PACKAGE = Path(fairseq_plugins.__file__).parent
CHECKOUT = PACKAGE.parent

IMPORT_AS_USER_DIR = """
import sys
from argparse import Namespace
from fairseq import utils
utils.import_user_module(Namespace(user_dir=sys.argv[1]))
import fairseq_plugins
from fairseq.models import ARCH_MODEL_REGISTRY
print(fairseq_plugins.__file__, "admin_transformer" in ARCH_MODEL_REGISTRY)
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


def python(*arguments: str, cwd: Path, path: Sequence[Path] = ()) -> str:
    """Standard output of a Python process that finds modules in ``path`` first."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's wheel, built from a copy because the build writes beside the sources."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(CHECKOUT / name, tree)
    shutil.copytree(PACKAGE, tree / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(CHECKOUT / "configs", tree / "configs", ignore=shutil.ignore_patterns("__pycache__"))
    python("-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", "dist", ".", cwd=tree)
    (built,) = (tree / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory like site-packages with the wheel in it."""
    directory = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(directory)
    return directory


def test_the_path_of_the_user_directory(site: Path, tmp_path: Path) -> None:
    assert python("-m", "fairseq_plugins", cwd=CHECKOUT) == f"{PACKAGE}\n"
    assert python("-m", "fairseq_plugins", cwd=tmp_path, path=[site]) == f"{site / 'fairseq_plugins'}\n"


@pytest.mark.slow
def test_user_dir_from_a_wheel(site: Path, tmp_path: Path) -> None:
    """fairseq is told the directory only; the package is imported again by name and is the same module."""
    output = python("-c", IMPORT_AS_USER_DIR, str(site / "fairseq_plugins"), cwd=tmp_path)
    assert output.splitlines()[-1] == f"{site / 'fairseq_plugins' / '__init__.py'} True"


def test_imported_and_given_as_user_dir() -> None:
    before = list(ARCH_MODEL_REGISTRY)
    utils.import_user_module(Namespace(user_dir=str(PACKAGE)))
    assert importlib.import_module("fairseq_plugins") is fairseq_plugins
    assert list(ARCH_MODEL_REGISTRY) == before


@pytest.mark.slow
def test_imported_and_given_as_user_dir_of_a_new_process(tmp_path: Path) -> None:
    code = "import fairseq_plugins\n" + IMPORT_AS_USER_DIR
    output = python("-c", code, str(PACKAGE), cwd=tmp_path, path=[CHECKOUT])
    assert output.splitlines()[-1] == f"{PACKAGE / '__init__.py'} True"


@pytest.mark.slow
def test_spawned_worker_registers(tmp_path: Path) -> None:
    """The command itself registers late; a worker that it spawns has to do so on import."""
    command = tmp_path / "fairseq-deep"
    command.write_text(SPAWN, encoding="utf-8")
    assert python(str(command), cwd=tmp_path, path=[CHECKOUT]).split()[-2:] == ["0", "1"]


def test_wheel_holds_the_package(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    files = {f"fairseq_plugins/{path.relative_to(PACKAGE)}" for path in PACKAGE.rglob("*.*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    configs = {f"fairseq_plugins/{path.relative_to(CHECKOUT)}" for path in CHECKOUT.glob("configs/*/*.yaml")}
    assert {name for name in names if name.startswith("fairseq_plugins/")} == files | configs


def test_wheel_says_what_it_is(site: Path) -> None:
    (info,) = site.glob("fairseq_deep-*.dist-info")
    metadata = (info / "METADATA").read_text(encoding="utf-8").splitlines()
    requirements = {re.split(r"[=>;]", line.split(": ")[1])[0] for line in metadata if line.startswith("Requires-Dist")}
    assert {"fairseq-fixed", "torch", "sacrebleu", "sacremoses", "sentencepiece", "subword-nmt"} <= requirements
    (python_versions,) = (line.split(": ")[1] for line in metadata if line.startswith("Requires-Python"))
    assert set(python_versions.split(",")) == {">=3.10", "<3.14"}
    assert "fairseq-deep = fairseq_plugins.cli.main:run" in (info / "entry_points.txt").read_text(encoding="utf-8")
    version = info.name[len("fairseq_deep-") : -len(".dist-info")]
    assert f"\nversion: {version}\n" in (CHECKOUT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{version}]" in (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8")


FIND = """
from pathlib import Path
from fairseq_plugins.pipeline.checkout import checkout, commit, configuration_file
print(configuration_file(Path("iwslt14_de_en/admin_6e6d")), checkout(), commit())
"""


@pytest.mark.slow
def test_a_wheel_has_the_configurations_and_says_that_it_is_no_checkout(site: Path, tmp_path: Path) -> None:
    """Its directory may lie in a repository of its user, whose commit is not that of the package."""
    subprocess.run(["git", "init", "-q", str(site)], check=True)
    found = python("-c", FIND, cwd=tmp_path, path=[site])
    assert found == f"{site}/fairseq_plugins/configs/iwslt14_de_en/admin_6e6d.yaml None None\n"
