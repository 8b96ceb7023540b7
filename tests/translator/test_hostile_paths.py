"""Paths with spaces, quotes, dollar signs, leading dashes and other letters: everything works, nothing is executed."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from fairseq_plugins.tools.pipeline.configuration import quoted
from tests import hostile
from tests.processes import Command
from tests.translator.conftest import Made

RECIPE = """
common: {cpu: true}
task: {_name: translation, data: "???", source_lang: de, target_lang: en}
model: {_name: post_ln_transformer}
criterion: {_name: label_smoothed_cross_entropy}
optimizer: {_name: adam}
lr_scheduler: {_name: inverse_sqrt}
dataset: {max_tokens: 400}
optimization: {max_update: 2}
"""


@pytest.fixture
def here(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a name that holds every hostile one, with raw text and a configuration."""
    place = tmp_path / hostile.EVERY_PATH
    shutil.copytree(made.data.parent / "raw", place / "raw")
    (place / "run.yaml").write_text(RECIPE, encoding="utf-8")
    monkeypatch.chdir(place)
    return place


def test_run_refuses_what_fairseq_would_read_as_another_path(made: Made, tmp_path: Path, deep: Command) -> None:
    (tmp_path / "run.yaml").write_text(RECIPE, encoding="utf-8")
    for name in ("a:b", "${oc.env:HOME}", "${common.seed}"):
        path = Path(shutil.copytree(made.data / "data-bin", tmp_path / name))
        for data, training in ((path, tmp_path / "run"), (made.data, path)):
            ended = deep("run", tmp_path / "run.yaml", data, training, "--dry-run")
            assert ended.code == 2
            assert ended.error.startswith(f"error: {path}")
            assert "is not supported in a path" in ended.error


def test_run_writes_its_log_through_no_link(made: Made, tmp_path: Path, deep: Command) -> None:
    (tmp_path / "run.yaml").write_text(RECIPE, encoding="utf-8")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train.log").symlink_to(tmp_path / "made")
    ended = deep("run", tmp_path / "run.yaml", made.data, tmp_path / "run")
    assert ended.code == 2
    assert ended.error.endswith(f"a link, through which nothing is written; remove it: {tmp_path}/run/train.log")
    assert not (tmp_path / "made").exists()


def test_text_and_packages_in_any_directory(here: Path, made: Made, deep: Command) -> None:
    sets = ["--train", here / "raw/train", "--valid", here / "raw/valid", "--test", f"test={here / 'raw/test'}"]
    ended = deep("prepare", here / "data", *sets, "--workers", "1", "--size", "60", "--lower-case", "1")
    assert ended.code == 0, ended.errors
    assert deep("score", here / "raw/test.en", here / "raw/test.en", "--metrics", "sacrebleu").code == 0
    shutil.copytree(made.package, here / "package")
    ended = deep("translate", here / "package", here / "raw/test.de", "--beam", "1")
    assert (ended.code, ended.output.count("\n")) == (0, 24)
    plan = deep("run", here / "run.yaml", here / "data", here / "run", "--dry-run")
    words = shlex.split(plan.output.splitlines()[-1])
    assert f"checkpoint.save_dir={quoted(here / 'run/checkpoints')}" in words
    assert list(here.parent.rglob("executed")) == []


def test_a_leading_dash_is_an_option_or_refused_in_one_line(here: Path, deep: Command) -> None:
    for words in (["prepare", "-data"], ["translate", "-package"], ["run", "-c", "d", "r"]):
        ended = deep(*words)
        assert (ended.code, len(ended.errors.splitlines())) == (2, 1), ended.errors
