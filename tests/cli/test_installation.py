"""The package as a user gets it: an sdist and a wheel that hold the same, a user directory, and no checkout anywhere.

The environment sees the installed dependencies of this one through its path, so pip finds them and downloads nothing;
the entries of the path that lead to a checkout are left behind, since Python reads them from no second directory.
"""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import fairseq_plugins
from tests import toy
from tests.breaks.__main__ import copy_of_tracked_files

PACKAGE = Path(fairseq_plugins.__file__).parent
ROOT = PACKAGE.parent
BUILD = "import setuptools.build_meta as backend; backend.build_sdist('dist'); backend.build_wheel('dist')"
TRAINING = ["--arch", "admin_transformer", *toy.TINY_MODEL, *toy.RECIPE, "--max-update", "2", "--save-dir", "run"]
FIND = """
from pathlib import Path
from fairseq_plugins.tools.pipeline.checkout import checkout, commit, configuration_file
print(configuration_file(Path("iwslt14_de_en/admin_6e6d")), checkout(), commit())
"""


def output(*words: str | Path, cwd: Path, path: Path | None = None) -> str:
    """The output of a command that has to succeed, in an environment that names no checkout but ``path``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "VIRTUAL_"))}
    environment = kept if path is None else {**kept, "PYTHONPATH": str(path)}
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist and the wheel, built from a copy because the build writes among the sources."""
    tree = tmp_path_factory.mktemp("tree")
    copy_of_tracked_files(ROOT, tree)
    output(sys.executable, "-c", BUILD, cwd=tree)
    return tree / "dist"


@pytest.fixture(scope="module")
def site(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory like site-packages with the wheel in it."""
    directory = tmp_path_factory.mktemp("site")
    (wheel,) = distributions.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(directory)
    return directory


def test_the_path_of_the_user_directory(site: Path, tmp_path: Path) -> None:
    for cwd, path in ((ROOT, None), (tmp_path, site)):
        printed = output(sys.executable, "-m", "fairseq_plugins", cwd=cwd, path=path)
        assert printed == f"{(path or ROOT) / 'fairseq_plugins'}\n"


def test_wheel_holds_the_package(site: Path) -> None:
    files = {path.relative_to(ROOT) for path in PACKAGE.rglob("*.*") if path.is_file()}
    files |= {Path("fairseq_plugins", path.relative_to(ROOT)) for path in ROOT.glob("configs/*/*.yaml")}
    held = {path.relative_to(site) for path in (site / "fairseq_plugins").rglob("*") if path.is_file()}
    differing = [name for name in held ^ files if "__pycache__" not in name.parts]
    assert differing == [], "a wheel holds what git tracks: git add"


def test_wheel_says_what_it_is(site: Path) -> None:
    (info,) = site.glob("fairseq_deep-*.dist-info")
    metadata = (info / "METADATA").read_text(encoding="utf-8").splitlines()
    requirements = {re.split(r"[=>;]", line.split(": ")[1])[0] for line in metadata if line.startswith("Requires-Dist")}
    assert {"fairseq-fixed", "torch", "sacrebleu", "sacremoses", "sentencepiece", "subword-nmt"} <= requirements
    (python_versions,) = (line.split(": ")[1] for line in metadata if line.startswith("Requires-Python"))
    assert set(python_versions.split(",")) == {">=3.10", "<3.14"}
    entries = (info / "entry_points.txt").read_text(encoding="utf-8")
    assert "fairseq-deep = fairseq_plugins.tools.cli.main:run" in entries
    version = info.name[len("fairseq_deep-") : -len(".dist-info")]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_wheel_has_the_configurations_and_says_that_it_is_no_checkout(site: Path, tmp_path: Path) -> None:
    """Its directory may lie in a repository of its user, whose commit is not that of the package."""
    subprocess.run(["git", "init", "-q", str(site)], check=True)
    printed = output(sys.executable, "-c", FIND, cwd=tmp_path, path=site)
    assert printed == f"{site}/fairseq_plugins/configs/iwslt14_de_en/admin_6e6d.yaml None None\n"


@pytest.mark.slow
def test_sdist_has_what_its_tests_need(distributions: Path, tmp_path: Path) -> None:
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in tracked.splitlines() if (ROOT / name).is_file()]
    missing = [name for name in names if not (unpacked / name).exists()]
    assert [name for name in missing if not re.match(r"\.ci/|\.git", name)] == []


@pytest.mark.slow
def test_an_environment_without_the_checkout_trains(distributions: Path, tmp_path: Path, toy_data: Path) -> None:
    directory = tmp_path / "environment"
    output(sys.executable, "-m", "venv", "--without-pip", directory, cwd=tmp_path)
    own = sysconfig.get_path("purelib", vars={"base": str(directory)})
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(own, "dependencies.pth").write_text("".join(f"{name}\n" for name in sorted(dependencies)), encoding="utf-8")
    python, deep = directory / "bin/python", directory / "bin/fairseq-deep"
    pip = [python, "-m", "pip", "--isolated", "--disable-pip-version-check", "install", "-q"]
    offline = ["--no-index", "--find-links", distributions, "--only-binary", ":all:"]
    # The checkout, too, is found on the path, and would do.
    output(*pip, *offline, "--ignore-installed", "--no-deps", "fairseq-deep", cwd=directory)
    # Every requirement is installed already, or pip fails: it has no index to ask.
    output(*pip, *offline, "fairseq-deep", cwd=directory)
    user_dir = output(python, "-m", "fairseq_plugins", cwd=tmp_path).strip()
    assert Path(user_dir).is_relative_to(directory)
    for command in ([deep, "train", toy_data], [python, "-m", "fairseq_cli.train", toy_data, "--user-dir", user_dir]):
        place = tmp_path / Path(command[-1]).name
        place.mkdir()
        output(*command, *TRAINING, cwd=place)
        assert (place / "run" / "checkpoint_last.pt").is_file()
