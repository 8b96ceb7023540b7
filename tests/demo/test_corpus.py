"""The files of the embedded corpus: reproducible, disjoint, well formed, rich enough."""

import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from fairseq_plugins.demo.corpus import pairs, write_corpus
from fairseq_plugins.demo.corpus.generate import main
from fairseq_plugins.errors import UserError

FILES = [f"{split}.{language}" for split in ("train", "valid", "test") for language in ("de", "en")]
SIZES = {"train": 24_000, "valid": 800, "test": 800}


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
    return [word.strip(".,!?") for line in lines for word in line.split()]


def test_line_counts(corpus: dict[str, list[str]]) -> None:
    assert {name: len(lines) for name, lines in corpus.items()} == {name: SIZES[name[:-3]] for name in FILES}


def test_lines_are_plain_sentences(corpus: dict[str, list[str]]) -> None:
    for lines in corpus.values():
        for line in lines:
            assert line[0].isupper() or line[0].isdigit(), line
            assert line[-1] in ".?!", line
            assert line == " ".join(line.split()), line
            assert not any(wrong in line for wrong in (" ,", ",,", ",.", "..", " .", ",?", ",!")), line
            assert 3 <= len(line.split()) <= 30, line


def test_splits_are_disjoint(corpus: dict[str, list[str]]) -> None:
    sources = [line for split in SIZES for line in corpus[f"{split}.de"]]
    assert len(set(sources)) == sum(SIZES.values())


def test_thousands_of_word_types_on_each_side(corpus: dict[str, list[str]]) -> None:
    for language in ("de", "en"):
        assert len(set(words(corpus[f"train.{language}"]))) > 3000
    german, english = words(corpus["train.de"]), words(corpus["train.en"])
    assert 8 <= len(german) / SIZES["train"] <= 14
    assert 8 <= len(english) / SIZES["train"] <= 14


def test_test_words_are_mostly_known_from_training(corpus: dict[str, list[str]]) -> None:
    known = set(words(corpus["train.de"]))
    test = words(corpus["test.de"])
    assert sum(word in known for word in test) / len(test) > 0.97


def test_same_seed_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    sizes = ["--train", "300", "--valid", "20", "--test", "20", "--seed", "7"]
    command = [sys.executable, "-m", "fairseq_plugins.demo.corpus", str(tmp_path / "command"), *sizes]
    # This process has a hash seed of its own, drawn at random unless it was given.
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment)
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


def test_pairs_are_endless_and_carry_their_tree() -> None:
    for pair in islice(pairs(3), 50):
        assert pair.german
        assert pair.english
        assert pair.tree.clauses


def test_illegal_sizes_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        write_corpus(tmp_path / "out", 0, -1, 10)
    assert len(caught.value.problems) == 2
    assert not (tmp_path / "out").exists()


def test_command_ends_with_two_on_a_bad_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert main([str(tmp_path / "file"), "--train", "5", "--valid", "1", "--test", "1"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
