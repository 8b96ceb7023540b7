"""Text of the job: what is refused and how, and that tokenising and detokenising belong together."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fairseq_plugins.demo.__main__ import main
from fairseq_plugins.demo.text import (
    Corpus,
    TextSettings,
    Tokeniser,
    find_prefix,
    read_corpus,
    write_subwords,
)
from fairseq_plugins.errors import UserError

PREFIXES = {"train": "train", "valid": "valid", "test": "test"}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A sound corpus of three sentences in each file."""
    for split in PREFIXES:
        (tmp_path / f"{split}.de").write_text(f"Ein {split}.\nZwei.\nDrei.\n", encoding="utf-8")
        (tmp_path / f"{split}.en").write_text(f"One {split}.\nTwo.\nThree.\n", encoding="utf-8")
    return tmp_path


def problems(directory: Path, source: str = "de", target: str = "en") -> list[str]:
    with pytest.raises(UserError) as caught:
        read_corpus(directory, source, target, PREFIXES)
    return list(caught.value.problems)


def test_sound_files_are_read(files):
    corpus = read_corpus(files, "de", "en", PREFIXES)
    assert corpus.sentences["train"] == {"de": ["Ein train.", "Zwei.", "Drei."], "en": ["One train.", "Two.", "Three."]}


def test_gzip_crlf_byte_order_mark_and_missing_last_line_end_are_read(files):
    (files / "train.de").unlink()
    (files / "train.de.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfEin\xc2\xa0Haus.\r\nZwei.\r\nDrei."))
    corpus = read_corpus(files, "de", "en", PREFIXES)
    assert corpus.sentences["train"]["de"] == ["Ein Haus.", "Zwei.", "Drei."]


def test_characters_that_other_tools_take_for_line_ends_do_not_split_a_sentence(files):
    (files / "train.de").write_text("Ein\u2028Haus\x85und\x0bHof.\nZwei.\nDrei.\n", encoding="utf-8", newline="\n")
    assert read_corpus(files, "de", "en", PREFIXES).sentences["train"]["de"][0] == "Ein Haus und Hof."


def test_missing_file(files):
    (files / "valid.en").unlink()
    assert problems(files) == [f"{files / 'valid.en'}: no such file (nor valid.en.gz)"]


def test_missing_directory(tmp_path):
    assert problems(tmp_path / "nowhere") == [f"{tmp_path / 'nowhere'}: no such directory of text files"]


@pytest.mark.parametrize("content", [b"", b"\n", b" \n\n"])
def test_empty_file(files, content):
    (files / "test.de").write_bytes(content)
    assert problems(files) == [f"{files / 'test.de'}: the file is empty"]


def test_unequal_number_of_lines(files):
    (files / "train.en").write_text("One.\nTwo.\n", encoding="utf-8")
    assert problems(files) == [
        f"{files}: train.de has 3 lines but train.en has 2 lines; sentence k must translate sentence k"
    ]


def test_latin_1_is_named_by_file_line_and_byte(files):
    (files / "train.de").write_bytes("Ein.\nHäuser.\nDrei.\n".encode("latin-1"))
    assert problems(files) == [f"{files / 'train.de'}: line 2: not UTF-8 (byte 0xe4)"]


def test_many_bad_lines_are_summed_up(files):
    (files / "train.de").write_bytes(b"\xff\n" * 12)
    found = problems(files)
    assert len(found) == 6
    assert found[0] == f"{files / 'train.de'}: line 1: not UTF-8 (byte 0xff)"
    assert found[-1] == f"{files / 'train.de'}: and 7 more lines like these"


def test_blank_sentences(files):
    (files / "train.de").write_text("Ein.\n \t\nDrei.\n", encoding="utf-8")
    (files / "train.en").write_text("\n".join(["One."] + [""] * 7 + ["Two."]) + "\n", encoding="utf-8")
    assert problems(files)[:2] == [
        f"{files / 'train.de'}: blank sentence in line 2",
        f"{files / 'train.en'}: blank sentence in lines 2, 3, 4, 5, 6 and 2 more",
    ]


def test_broken_gzip(files):
    whole = gzip.compress(b"Ein.\nZwei.\nDrei.\n" * 100)
    for name, content in (("train.de", whole[:-9]), ("valid.de", b"not gzip at all"), ("test.de", whole[:30] + whole)):
        (files / name).unlink()
        (files / f"{name}.gz").write_bytes(content)
    assert problems(files) == [f"{files / name}.de.gz: not a whole gzip file" for name in ("train", "valid", "test")]


def test_all_problems_are_reported_together_with_code_2_and_nothing_is_written(files, tmp_path, capsys):
    (files / "train.de").write_bytes(b"\xe4\nZwei.\nDrei.\n")
    (files / "valid.en").unlink()
    (files / "test.en").write_text("One.\n", encoding="utf-8")
    out = tmp_path / "out"
    assert main(["--data", str(files), "--out", str(out), "--methods", "transformer", "--device", "cpu"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[0] for line in errors] == ["error"] * 3
    assert "line 1: not UTF-8" in errors[0]
    assert "valid.en: no such file" in errors[1]
    assert "test.de has 3 lines but test.en has 1 lines" in errors[2]
    assert not out.exists()


def test_usual_names_of_the_valid_files_are_found(tmp_path):
    assert find_prefix(tmp_path, "valid", "de") == "valid"
    (tmp_path / "val.de.gz").touch()
    assert find_prefix(tmp_path, "valid", "de") == "val"


@pytest.mark.parametrize(
    "sentence",
    [
        "He said: \"It's 3 o'clock, isn't it?\"",
        "A well-known man & his dog cost $3.50 [sic] | there.",
        "They'll arrive on 3 May 2021.",
    ],
)
def test_detokenising_undoes_tokenising(sentence):
    tokeniser = Tokeniser("en")
    assert "&apos;" not in tokeniser.split(sentence)
    assert "&amp;" not in tokeniser.split(sentence)
    assert tokeniser.join(tokeniser.split(sentence)) == sentence


def corpus_of(train: list[str]) -> Corpus:
    sides = {"train": train, "valid": ["ab " * 8], "test": ["ab " * 8]}
    return Corpus("de", "en", {split: {"de": lines, "en": lines} for split, lines in sides.items()})


def test_long_pairs_are_dropped_from_training_alone_and_counted(tmp_path):
    said: list[str] = []
    corpus = corpus_of(["ab ab", "ab ab ab ab ab ab", "ab"])
    write_subwords(corpus, TextSettings(bpe_operations=1, max_length=4), tmp_path, said.append)
    assert (tmp_path / "train.de").read_text(encoding="utf-8") == "ab ab\nab\n"
    assert (tmp_path / "test.en").read_text(encoding="utf-8") == "ab ab ab ab ab ab ab ab\n"
    assert said[-1] == "training pairs: 2; dropped as longer than 4 subwords: 1"


def test_text_of_single_letters_is_refused(tmp_path):
    with pytest.raises(UserError, match="the training text: there are no subwords to learn"):
        write_subwords(corpus_of(["a b c"]), TextSettings(bpe_operations=1, max_length=4), tmp_path, print)


def test_nothing_short_enough_is_refused(tmp_path):
    with pytest.raises(UserError, match="no training pair has at most 4 subwords"):
        write_subwords(corpus_of(["ab ab ab ab ab"]), TextSettings(bpe_operations=1, max_length=4), tmp_path, print)
