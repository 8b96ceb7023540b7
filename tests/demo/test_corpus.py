"""The files of the embedded corpus: reproducible, disjoint, as many as asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_plugins.demo.corpus import LARGEST, write_corpus
from fairseq_plugins.errors import UserError

FILES = [f"{split}.{language}" for split in ("train", "valid", "test") for language in ("de", "en")]
SIZES = {"train": 8000, "valid": 200, "test": 200}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Lines of the six files at the size of the demo."""
    directory = tmp_path_factory.mktemp("corpus")
    write_corpus(directory, **SIZES)
    assert sorted(path.name for path in directory.iterdir()) == sorted(FILES)
    texts = {name: (directory / name).read_bytes().decode("utf-8") for name in FILES}
    assert all(text.endswith("\n") for text in texts.values())
    return {name: text[:-1].split("\n") for name, text in texts.items()}


def contents(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in FILES}


def words(lines: list[str]) -> list[str]:
    return [word.strip(".,?") for line in lines for word in line.split()]


def test_line_counts(corpus: dict[str, list[str]]) -> None:
    assert {name: len(lines) for name, lines in corpus.items()} == {name: SIZES[name[:-3]] for name in FILES}


def test_no_sentence_of_either_language_is_in_two_splits(corpus: dict[str, list[str]]) -> None:
    for language in ("de", "en"):
        sentences = [line for split in SIZES for line in corpus[f"{split}.{language}"]]
        assert len(set(sentences)) == sum(SIZES.values())


def test_every_word_to_be_translated_is_known_from_training(corpus: dict[str, list[str]]) -> None:
    assert set(words(corpus["test.de"])) <= set(words(corpus["train.de"]))


@pytest.mark.slow
def test_same_seed_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    code = "import sys, pathlib; from fairseq_plugins.demo.corpus import write_corpus as w; "
    code += "w(pathlib.Path(sys.argv[1]), 300, 20, 20, seed=7)"
    # This process has a hash seed of its own, drawn at random unless it was given.
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "command")], check=True, env=environment)
    write_corpus(tmp_path / "same", 300, 20, 20, seed=7)
    write_corpus(tmp_path / "other", 300, 20, 20, seed=8)
    same, other = contents(tmp_path / "same"), contents(tmp_path / "other")
    assert contents(tmp_path / "command") == same
    assert all(other[name] != content for name, content in same.items())


def test_held_out_sets_do_not_depend_on_the_training_size(tmp_path: Path) -> None:
    write_corpus(tmp_path / "small", 10, 20, 20)
    write_corpus(tmp_path / "large", 400, 20, 20)
    small, large = contents(tmp_path / "small"), contents(tmp_path / "large")
    assert all(small[name] == large[name] for name in FILES if not name.startswith("train"))
    assert large["train.de"].startswith(small["train.de"])


def test_writing_again_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    write_corpus(tmp_path, 50, 5, 5, seed=1)
    write_corpus(tmp_path, 40, 5, 5, seed=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    assert len((tmp_path / "train.de").read_text(encoding="utf-8").splitlines()) == 40


def test_illegal_sizes_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        write_corpus(tmp_path / "out", LARGEST + 1, -1, 10)
    assert caught.value.problems == (
        f"-1 valid pairs: must be between 1 and {LARGEST:,}",
        f"{LARGEST + 1} train pairs: must be between 1 and {LARGEST:,}",
    )
    assert not (tmp_path / "out").exists()


def test_a_place_that_is_no_directory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="cannot write the corpus to '.*file': File exists"):
        write_corpus(tmp_path / "file", 5, 1, 1)
