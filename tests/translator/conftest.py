"""A package of a tiny model that was really prepared, trained and packaged, once for these tests; and the command."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from hydra.core.global_hydra import GlobalHydra

from fairseq_plugins.tools.cli import main as cli
from fairseq_plugins.tools.pipeline import commands
from fairseq_plugins.tools.translator import packaging
from fairseq_plugins.tools.translator.package import open_package, write_manifest
from tests import processes, toy

MOST = 40
"""Tokens of a translation: a model that knows so little often does not end one."""


class Made(NamedTuple):
    """Paths that the fixture has made: the prepared directory, the checkpoint, the package."""

    data: Path
    checkpoint: Path
    package: Path


@pytest.fixture(scope="package")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    place = tmp_path_factory.mktemp("translator")
    toy.write_sentences(place / "raw")
    patch = pytest.MonkeyPatch()
    # A process of its own would import fairseq once more.
    patch.setattr(commands, "run", lambda *words, **_: cli.main([str(word) for word in words[len(commands.DEEP) :]]))
    sets = [f"--{name}={place}/raw/{name}" for name in ("train", "valid")]
    settings = ["--size", "60", "--lower-case", "1", "--workers", "1"]
    assert cli.main(["prepare", f"{place}/data", *sets, f"--test=test={place}/raw/test", *settings]) == 0
    patch.undo()
    flags = ["--share-all-embeddings", "--max-update", "40", "--max-epoch", "1000", "--no-epoch-checkpoints"]
    flags += ["--max-tokens", "400", "--save-interval", "1000"]
    checkpoint = toy.train_toy(place / "data" / "data-bin", place / "saved", *flags, arch="admin_transformer")
    words = [str(checkpoint), str(place / "package"), "--data", str(place / "data")]
    assert packaging.main(words) == 0
    content = open_package(place / "package").content
    write_manifest(place / "package", {**content, "search": {**content["search"], "max_len_b": MOST}})
    return Made(place / "data", checkpoint, place / "package")


@pytest.fixture
def package(made: Made, tmp_path: Path) -> Path:
    """A copy, which a test may change."""
    return Path(shutil.copytree(made.package, tmp_path / "package"))


@pytest.fixture
def deep(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> processes.Command:
    """``fairseq-deep`` in this process, and with it the commands that it starts; a word may be a path."""
    command = processes.in_this_process(monkeypatch, capfd)

    def run(*words: object) -> processes.Ended:
        GlobalHydra.instance().clear()
        return command(*map(str, words))

    def inside(*words: object, **_: object) -> None:
        assert run(*words[len(commands.DEEP) :]).code == 0

    monkeypatch.setattr(commands, "run", inside)
    return run
