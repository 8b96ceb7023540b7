"""``fairseq-deep verify-data``: real corpora are named, and every way in which data go wrong is."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fairseq import options
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq_cli import preprocess

from fairseq_plugins.process import exit_code
from fairseq_plugins.text import known_corpora, measure
from fairseq_plugins.text.verify import main
from tests import toy

Corpus = Callable[[str], Path]


class Result:
    """The output of one call of the command."""

    def __init__(self, code: int, printed: str, errors: str) -> None:
        self.code = code
        self.content: dict[str, Any] = json.loads(printed)
        self.errors = errors

    def says(self, *levels: str) -> list[str]:
        return [f"{v['about']}: {v['message']}" for v in self.content["verdicts"] if v["level"] in levels]

    @property
    def bad(self) -> list[str]:
        return self.says("broken", "differs")

    def file(self, path: str) -> dict[str, Any]:
        return next(file for file in self.content["files"] if file["path"] == path)


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    def run(directory: Path, *flags: str) -> Result:
        capsys.readouterr()
        code = exit_code(lambda: main([str(directory), "--json", *flags]))
        return Result(code, *capsys.readouterr())

    return run


def write(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def binarise(text: Path, destination: Path, splits: Sequence[str], dictionaries: Path | None = None) -> None:
    flags = ["-s", "de", "-t", "en", "--destdir", str(destination), "--workers", "1"]
    for split in splits:
        flags += [f"--{split}pref", str(text / split)]
    if dictionaries is not None:
        flags += ["--srcdict", str(dictionaries / "dict.de.txt"), "--tgtdict", str(dictionaries / "dict.en.txt")]
    preprocess.main(options.get_preprocessing_parser().parse_args(flags))


# Real text ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def iwslt(real_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared directory with the canonical test and validation sets, binarised with the canonical dictionaries."""
    source, directory = real_corpus("iwslt14_deen"), tmp_path_factory.mktemp("iwslt 14")
    (directory / "text").mkdir()
    for split in ("valid", "test"):
        for language in ("de", "en"):
            shutil.copy(source / f"{split}.{language}", directory / "text")
            shutil.copy(source / f"{split}.tok.{language}", directory / "text")
    shutil.copy(source / "code", directory / "codes")
    binarise(directory / "text", directory / "data-bin", ("valid", "test"), source)
    return directory


def test_canonical_iwslt_agrees_in_every_published_count(iwslt: Path, verify: Callable[..., Result]) -> None:
    result = verify(iwslt, "--expect", "iwslt14-de-en")
    assert result.bad == []
    assert result.code == 0
    assert result.content["corpus"] == "iwslt14-de-en"
    counted = {
        name: (result.file(f"data-bin/{name}")["rows"], result.file(f"data-bin/{name}")["tokens"])
        for name in ("valid.de-en.de.bin", "valid.de-en.en.bin", "test.de-en.de.bin", "test.de-en.en.bin")
    }
    # Public logs of fairseq-preprocess.
    assert counted == {
        "valid.de-en.de.bin": (7283, 182592),
        "valid.de-en.en.bin": (7283, 178622),
        "test.de-en.de.bin": (6750, 161838),
        "test.de-en.en.bin": (6750, 156928),
    }
    unknown = {path: result.file(f"data-bin/{path}")["unk"] / tokens for path, (_, tokens) in counted.items()}
    assert [f"{100 * share:.3g}" for share in unknown.values()] == ["0.0192", "0.00448", "0.0636", "0.00892"]
    assert [vocabulary["types"] for vocabulary in result.content["vocabularies"]] == [8848, 6632]
    same = result.says("same")
    assert "text/test.tok.en: exactly the known text" in same
    assert "codes: exactly the known byte-pair merges" in same


def test_sum_is_of_the_whole_file(iwslt: Path, verify: Callable[..., Result]) -> None:
    path = iwslt / "text" / "test.de"
    assert verify(iwslt).file("text/test.de")["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_another_tokeniser_is_noticed(iwslt: Path, tmp_path: Path, verify: Callable[..., Result]) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(iwslt / "text", copy / "text")
    lines = lines_of(copy / "text" / "test.de")
    write(copy / "text" / "test.de", [lines[0] + " .", *lines[1:]])
    result = verify(copy)
    assert result.code == 1
    assert "text/test.de: 161,839 tokens instead of 161,838: tokenised or split into subwords differently" in result.bad
    assert "text/test.de: not the known text: its SHA-256 differs" in result.bad


def test_lost_sentences_are_named(iwslt: Path, tmp_path: Path, verify: Callable[..., Result]) -> None:
    """What fairseq's batcher leaves of the test set, written to a binarised file."""
    copy = tmp_path / "copy"
    shutil.copytree(iwslt, copy)
    for language in ("de", "en"):
        write(copy / "short" / f"test.{language}", lines_of(copy / "text" / f"test.{language}")[:6744])
    binarise(copy / "short", copy / "data-bin", ("test",), iwslt / "data-bin")
    result = verify(copy)
    assert result.code == 1
    assert "data-bin/test.de-en.de.bin: 6,744 rows, but text/test.de has 6,750" in result.bad
    assert "data-bin/test.de-en.de.bin: 6,744 rows instead of 6,750" in result.bad


def test_multi30k_is_recognised_by_its_text(real_corpus: Corpus, verify: Callable[..., Result]) -> None:
    result = verify(real_corpus("multi30k"))
    assert (result.code, result.content["corpus"], result.bad) == (0, "multi30k-de-en", [])
    rows = {file["split"]: file["rows"] for file in result.content["files"]}
    assert [rows[split] for split in ("train", "valid", "test_2016_flickr")] == [29000, 1014, 1000]
    # Compressed text is summed as text.
    assert "train.de.gz: exactly the known text" in result.says("same")


def test_published_test_sets_are_known_by_name_and_checksum(
    real_corpus: Corpus, tmp_path: Path, verify: Callable[..., Result]
) -> None:
    news = real_corpus("wmt_news")
    assert verify(news).code == 0
    for language in ("de", "en"):
        shutil.copy(news / f"newstest2014.{language}", tmp_path / f"test.{language}")
        write(tmp_path / f"newstest2014-filtered.{language}", ["a"] * 2737)
        write(tmp_path / f"newstest2018.{language}", ["a"] * 3000)
    result = verify(tmp_path)
    assert "test.de: exactly newstest2014 in de" in result.says("same")
    assert "newstest2014-filtered.de: 2,737 rows" in result.says("same")
    assert result.bad == [f"newstest2018.{language}: 3,000 rows instead of 2,998" for language in ("de", "en")]


def test_test_set_under_the_name_of_another(real_corpus: Corpus, tmp_path: Path, verify: Callable[..., Result]) -> None:
    news = real_corpus("wmt_news")
    shutil.copy(news / "newstest2011.de", tmp_path / "newstest2012.de")
    shutil.copy(news / "newstest2012.de", tmp_path / "newstest2012.en")
    result = verify(tmp_path)
    assert result.code == 1
    assert result.bad == ["newstest2012.de: exactly newstest2011 in de", "newstest2012.en: exactly newstest2012 in de"]


# Made-up corpora ----------------------------------------------------------------------------------------------------


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A prepared directory of the toy corpus, whole."""
    directory = tmp_path / "toy corpus"
    toy.binarise(directory, joined=True)
    return directory


def test_unknown_corpus_is_only_counted(prepared: Path, verify: Callable[..., Result]) -> None:
    result = verify(prepared)
    assert (result.code, result.content["corpus"], result.bad) == (0, None, [])
    assert result.content["joined_dictionary"] is True
    text, binary = result.file("text/train.de"), result.file("data-bin/train.de-en.de.bin")
    words = [line.split() for line in lines_of(prepared / "text" / "train.de")]
    assert text["rows"] == binary["rows"] == len(words) == 120
    assert text["tokens"] == binary["tokens"] == sum(map(len, words)) + 120
    assert text["types"] == binary["types"] == len({word for line in words for word in line})
    assert (text["unk"], binary["unk"], binary["empty"]) == (None, 0, 0)


def test_expectation_that_is_not_met(prepared: Path, verify: Callable[..., Result]) -> None:
    result = verify(prepared, "--expect", "multi30k-de-en")
    assert result.code == 1
    assert "text/train.de: 120 rows instead of 29,000" in result.bad
    assert "corpus: nothing in it agrees with multi30k-de-en" in result.bad


def test_expectation_of_other_languages(prepared: Path, verify: Callable[..., Result]) -> None:
    result = verify(prepared, "--expect", "wmt14-en-fr")
    assert (result.code, result.bad) == (1, ["languages: de and en; wmt14-en-fr has en and fr"])


def test_dropped_line(prepared: Path, verify: Callable[..., Result]) -> None:
    write(prepared / "text" / "test.en", lines_of(prepared / "text" / "test.en")[:-1])
    assert verify(prepared).bad == [
        "test: unequal numbers of rows: text/test.de has 60, text/test.en has 59",
        "data-bin/test.de-en.en.bin: 60 rows, but text/test.en has 59",
    ]


def test_text_changed_after_binarising(prepared: Path, verify: Callable[..., Result]) -> None:
    lines = lines_of(prepared / "text" / "train.de")
    write(prepared / "text" / "train.de", [lines[0] + " drei", *lines[1:]])
    (line,) = verify(prepared).bad
    assert line.startswith("data-bin/train.de-en.de.bin: ")
    assert line.endswith("binarised from another text")


def test_references_that_lost_a_line(prepared: Path, verify: Callable[..., Result]) -> None:
    for language in ("de", "en"):
        write(prepared / "raw" / f"test.{language}", lines_of(prepared / "text" / f"test.{language}")[1:])
    assert verify(prepared).bad == [
        "raw/test.de: 59 rows, but text/test.de has 60",
        "raw/test.en: 59 rows, but text/test.en has 60",
    ]


def test_cleaned_training_text_may_be_shorter_than_the_tokenised(prepared: Path, verify: Callable[..., Result]) -> None:
    for language in ("de", "en"):
        write(prepared / "text" / f"train.tok.{language}", [*lines_of(prepared / "text" / f"train.{language}"), "drei"])
    assert verify(prepared).bad == []


def test_test_set_with_a_dot_in_its_name(prepared: Path, verify: Callable[..., Result]) -> None:
    for language in ("de", "en"):
        for kind in ("", ".tok"):
            path = prepared / "text" / f"test.{language}"
            shutil.copy(path, path.with_name(f"my.test{kind}.{language}"))
    files = verify(prepared).content["files"]
    assert {file["kind"] for file in files if file["split"] == "my.test"} == {"text", "tok"}


def test_bytes_are_counted(tmp_path: Path, verify: Callable[..., Result]) -> None:
    """As many tokens as enwik8's smaller parts have bytes; the training part is left out for its size."""
    write(tmp_path / "data-bin" / "dict.txt", (f"{byte} 1" for byte in range(204)))
    for split, tokens in (("valid", 5000000), ("test", 5000001)):
        write_rows(tmp_path / "data-bin" / split, tokens // 2, tokens % 2)
    result = verify(tmp_path, "--expect", "enwik8")
    assert (result.code, result.bad) == (0, [])
    assert "data-bin/test.bin: 5,000,001 tokens" in result.says("same")
    assert verify(tmp_path, "--expect", "wikitext-103").code == 1


def test_text_of_a_language_model(tmp_path: Path, verify: Callable[..., Result]) -> None:
    """As prepare_enwik8.sh writes it; an empty line is text there, too."""
    for split, lines in (("train", ["1 2 3", "", "2"]), ("valid", ["1 1"])):
        write(tmp_path / "text" / f"{split}.txt", lines)
    flags = ["--only-source", "--workers", "1", "--destdir", str(tmp_path / "data-bin")]
    flags += ["--trainpref", str(tmp_path / "text" / "train.txt"), "--validpref", str(tmp_path / "text" / "valid.txt")]
    preprocess.main(options.get_preprocessing_parser().parse_args(flags))
    result = verify(tmp_path)
    assert (result.code, result.content["languages"], result.bad) == (0, [], [])
    for path in ("text/train.txt", "data-bin/train.bin"):
        assert [result.file(path)[count] for count in ("rows", "tokens", "empty")] == [3, 7, 1]
    write(tmp_path / "text" / "train.txt", ["1 2 3", "2"])
    assert verify(tmp_path).bad == ["data-bin/train.bin: 3 rows, but text/train.txt has 2"]


def test_joined_dictionary_knows_more_words(iwslt: Path, tmp_path: Path, verify: Callable[..., Result]) -> None:
    shutil.copytree(iwslt / "text", tmp_path / "text")
    words = dict(
        line.rsplit(" ", 1)
        for language in ("de", "en")
        for line in lines_of(iwslt / "data-bin" / f"dict.{language}.txt")
    )
    for language in ("de", "en"):
        write(tmp_path / "joined" / f"dict.{language}.txt", (" ".join(item) for item in words.items()))
    binarise(tmp_path / "text", tmp_path / "data-bin", ("test",), tmp_path / "joined")
    result = verify(tmp_path)
    assert result.file("data-bin/test.de-en.de.bin")["unk"] < 103
    # Another dictionary than Admin's, which is made of the whole training text; but that is all.
    assert [line.split(":")[0] for line in result.bad] == ["data-bin/dict.de.txt, data-bin/dict.en.txt"]


def test_names_of_further_test_sets(prepared: Path, verify: Callable[..., Result]) -> None:
    for language in ("de", "en"):
        shutil.copy(prepared / "text" / f"test.{language}", prepared / "text" / f"other.{language}")
        for ending in ("bin", "idx"):
            stem = prepared / "data-bin" / f"test.de-en.{language}.{ending}"
            shutil.copy(stem, stem.with_name(stem.name.replace("test.", "test1.")))
    (prepared / "test_sets").write_text("test\ttest\ntest1\tother\n", encoding="utf-8")
    result = verify(prepared)
    assert result.bad == []
    assert result.file("data-bin/test1.de-en.en.bin")["split"] == "other"


RAW_TEXT: Mapping[str, tuple[bytes, str]] = {
    "latin-1": (b"ein\nf\xfcnf\n", "line 2 is not UTF-8 (byte 0xfc)"),
    "empty": (b"", "the file is empty"),
    "empty lines": (b"ein\n \nzwei\n\n", "2 empty lines"),
    "returns": (b"ein\rzwei\ndrei\r\n", "1 carriage returns, which fairseq reads as ends of lines"),
    "mark": (
        b"\xef\xbb\xbfein\n\xef\xbb\xbfdrei\n",
        "line 1 begins with a byte order mark, which fairseq reads as a part of the first word",
    ),
    "cut off": (b"ein\nzw", "the last line has no end: the file may be truncated"),
}


class TestDamage:
    @pytest.mark.parametrize("kind", RAW_TEXT)
    def test_text(self, kind: str, tmp_path: Path, verify: Callable[..., Result]) -> None:
        content, said = RAW_TEXT[kind]
        (tmp_path / "test.de").write_bytes(content)
        if content:
            write(tmp_path / "test.en", ["word"] * (content.count(b"\n") + (not content.endswith(b"\n"))))
        assert f"test.de: {said}" in verify(tmp_path).bad

    def test_published_references_keep_their_carriage_returns(
        self, tmp_path: Path, verify: Callable[..., Result]
    ) -> None:
        """``prepare.sh`` copies them byte for byte; to the text that fairseq reads they are damage."""
        for kind in ("raw", "text"):
            (tmp_path / kind).mkdir()
            (tmp_path / kind / "test.de").write_bytes(b"ein\rzwei\ndrei\n")
            write(tmp_path / kind / "test.en", ["one two", "three"])
        assert verify(tmp_path).bad == ["text/test.de: 1 carriage returns, which fairseq reads as ends of lines"]

    def test_missing_language(self, tmp_path: Path, verify: Callable[..., Result]) -> None:
        for name in ("train.de", "train.en", "test.de"):
            write(tmp_path / name, ["a"])
        assert verify(tmp_path).bad == ["test.de: no such file in en"]

    def test_cut_off_gzip(self, tmp_path: Path, verify: Callable[..., Result]) -> None:
        packed = gzip.compress(b"".join(b"line %d\n" % number for number in range(5000)))
        (tmp_path / "train.de.gz").write_bytes(packed[: len(packed) // 2])
        write(tmp_path / "train.en", (f"line {number}" for number in range(5000)))
        assert "train.de.gz: not a whole gzip file" in verify(tmp_path).bad

    def test_cut_off_binary(self, prepared: Path, verify: Callable[..., Result]) -> None:
        path = prepared / "data-bin" / "train.de-en.de.bin"
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        tokens = len(whole) // 2
        assert verify(prepared).bad == [
            f"data-bin/train.de-en.de.bin: its index lists {tokens:,} tokens, but it has {tokens // 2:,}: "
            "the file is truncated"
        ]

    @pytest.mark.parametrize("ending", ["bin", "idx"])
    @pytest.mark.parametrize("content", [b"", b"MMIDIDX\x00\x00\x01"])
    def test_binary_that_fairseq_cannot_open(
        self, prepared: Path, verify: Callable[..., Result], ending: str, content: bytes
    ) -> None:
        (prepared / "data-bin" / f"test.de-en.en.{ending}").write_bytes(content)
        result = verify(prepared)
        assert result.code == 1
        assert any(line.startswith("data-bin/test.de-en.en.bin: ") for line in result.bad)
        # Nothing of the destructors of fairseq's half-made objects.
        assert result.errors == ""

    @pytest.mark.parametrize("ending", ["bin", "idx"])
    def test_missing_binary(self, prepared: Path, verify: Callable[..., Result], ending: str) -> None:
        (prepared / "data-bin" / f"test.de-en.en.{ending}").unlink()
        assert any(
            line.startswith("data-bin/test.de-en.en.bin: the .bin or the .idx file is missing")
            for line in verify(prepared).bad
        )

    def test_another_dictionary(self, prepared: Path, verify: Callable[..., Result]) -> None:
        path = prepared / "data-bin" / "dict.de.txt"
        words = [line for line in lines_of(path) if not line.startswith("madeupword")]
        write(path, words)
        assert verify(prepared).bad == []
        # Without the rarest word, the last.
        write(path, words[:-1])
        bad = verify(prepared).bad
        assert bad
        assert all("it was binarised with another dictionary" in line for line in bad)

    @pytest.mark.parametrize("content", [b"a b c\n", b"a 1\na 1\n", b"\xfc 1\n"])
    def test_dictionary_that_is_none(self, prepared: Path, verify: Callable[..., Result], content: bytes) -> None:
        (prepared / "data-bin" / "dict.en.txt").write_bytes(content)
        bad = verify(prepared).bad
        assert any(line.startswith("data-bin/dict.en.txt: not a dictionary: ") for line in bad)
        assert any("there is no usable dictionary for it (dict.en.txt)" in line for line in bad)


# Training text in other sets -----------------------------------------------------------------------------------------


def test_pairs_of_the_training_text_in_other_sets(tmp_path: Path, verify: Callable[..., Result]) -> None:
    for language in ("de", "en"):
        write(tmp_path / f"train.{language}", (f"{language} {number}" for number in range(10)))
        write(tmp_path / f"test.{language}", [f"{language} 3", f"{language} 3", f"{language} 4", f"{language} 30"])
        write(tmp_path / f"valid.{language}", [f"{language} 40", f"{'de' if language == 'de' else 'other'} 5"])
        write(tmp_path / f"dev2.{language}", lines_of(tmp_path / f"valid.{language}"))
    assert verify(tmp_path).says("note")[:2] == [
        "dev2: the same text as valid, on which checkpoints are chosen",
        "test: 3 of 4 pairs are also in train",
    ]


def test_the_training_text_is_no_test_set(prepared: Path, verify: Callable[..., Result]) -> None:
    assert verify(prepared).bad == []
    for ending in ("bin", "idx"):
        for language in ("de", "en"):
            place = prepared / "data-bin"
            shutil.copy(place / f"train.de-en.{language}.{ending}", place / f"test.de-en.{language}.{ending}")
            shutil.copy(place / f"train.de-en.{language}.{ending}", place / f"valid.de-en.{language}.{ending}")
    result = verify(prepared / "data-bin")
    said = "the same text as train: what is measured on it says nothing"
    assert (result.bad, result.code) == ([f"test: {said}", f"valid: {said}"], 1)
    assert [line.split(" of ")[0] for line in result.says("note")[:2]] == ["test: 120", "valid: 120"]


# The known corpora --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        (160239, "iwslt14-de-en"),
        (3960793, "wmt17-en-de"),
        (4500966, "wmt16-en-de-google"),
        (4520620, "wmt14-en-de"),
        (3940217, "wmt14-en-de"),
        (4590101, "wmt17-en-de"),
        (4505000, "wmt14-en-de"),
        (1000000, None),
    ],
)
def test_training_set_is_recognised_by_its_size(rows: int, name: str | None) -> None:
    files = [measure.File(f"train.{language}", "text", "train", language, rows=rows) for language in ("de", "en")]
    corpus = known_corpora.recognise(measure.Directory("", "text", ["de", "en"], files))
    assert (corpus.name if corpus else None) == name


def test_merges_of_each_language(prepared: Path, verify: Callable[..., Result]) -> None:
    (prepared / "codes").unlink(missing_ok=True)
    for language in ("de", "en"):
        (prepared / f"codes.{language}").write_text(f"#version: 0.2\n{language}\n", encoding="utf-8")
    codes = {name: hashlib.sha256((prepared / name).read_bytes()).hexdigest() for name in ("codes.de", "codes.en")}
    assert verify(prepared).content["codes"] == codes


def test_text_before_cleaning_may_be_longer_than_the_known_training_set() -> None:
    files = [
        measure.File(f"{kind}/train.de", kind, "train", "de", rows=rows)
        for kind, rows in (("raw", 174443), ("tok", 174443), ("text", 160239))
    ]
    verdicts = known_corpora.corpora()["iwslt14-de-en"].compare(measure.Directory("", "prepared", ["de"], files))
    assert [verdict.message for verdict in verdicts if "rows" in verdict.message] == ["160,239 rows"]


def test_wmt17_is_not_wmt14(tmp_path: Path, verify: Callable[..., Result]) -> None:
    """A binarised corpus of as many rows as prepare-wmt14en2de.sh leaves, each of one token."""
    for language in ("en", "de"):
        write(tmp_path / f"dict.{language}.txt", ["a 1"])
        write_rows(tmp_path / f"train.en-de.{language}", 3960793)
    result = verify(tmp_path, "--expect", "wmt14-en-de")
    assert (result.code, result.content["corpus"]) == (1, "wmt14-en-de")
    assert "train.en-de.de.bin: 3,960,793 rows instead of 3,895,000 to 3,906,000" in result.bad
    assert result.file("train.en-de.en.bin")["tokens"] == 2 * 3960793
    alone = verify(tmp_path)
    assert (alone.code, alone.content["corpus"]) == (0, "wmt17-en-de")


def write_rows(prefix: Path, rows: int, more: int = 0) -> None:
    """A binarised file of ``rows`` sentences of one token, the first longer, written as fairseq's builder does."""
    np.concatenate([[4] * more, np.tile(np.array([4, 2]), rows)]).astype(np.uint16).tofile(f"{prefix}.bin")
    with MMapIndexedDataset.Index.writer(f"{prefix}.idx", np.uint16) as index:
        index.write([2 + more] + [2] * (rows - 1))


def test_facts_are_consistent() -> None:
    """WMT's rows: Europarl v7, Common Crawl, News Commentary v9 or v12; one line in 100 goes to validation."""
    corpora = known_corpora.corpora()
    for corpus in corpora.values():
        assert all(len(bytes.fromhex(digest)) == 32 for digest in corpus.sha256.values())
        for form in (form for forms in corpus.splits.values() for form in forms):
            assert set(form.get("tokens", {})) <= set(corpus.languages or [""])
    for name, commentary in (("wmt14-en-de", 201288), ("wmt17-en-de", 270769)):
        total = 1920209 + 2399123 + commentary
        rows = {split: [form["rows"] for form in corpora[name].splits[split]] for split in ("train", "valid")}
        assert {total, total - total // 100} <= {count for count in rows["train"] if isinstance(count, int)}
        assert total // 100 in rows["valid"]
    words = {"train": 101425671, "valid": 213886, "test": 241211}  # of WikiText-103's release, without <eos>
    for split, [form] in corpora["wikitext-103"].splits.items():
        assert form["tokens"][""] == words[split] + form["rows"]


# As a user calls it -------------------------------------------------------------------------------------------------


class TestCommand:
    @pytest.mark.parametrize(
        ("argv", "line"),
        [
            (["nowhere"], "error: nowhere: no such directory"),
            (["--expect", "iwslt14-de"], "error: unknown corpus 'iwslt14-de' (did you mean 'iwslt14-de-en'?)"),
            ([], "error: no directory given"),
        ],
    )
    def test_bad_input_is_one_line_and_code_2(
        self, argv: list[str], line: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        argv = argv if argv != ["--expect", "iwslt14-de"] else ["somewhere", *argv]
        assert exit_code(lambda: main(argv)) == 2
        (printed,) = capsys.readouterr().err.splitlines()
        assert printed.startswith(line)

    def test_directory_without_a_corpus(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "README.md").write_text("no corpus")
        assert exit_code(lambda: main([str(tmp_path)])) == 2
        assert "contains no corpus" in capsys.readouterr().err

    def test_table(self, prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
        capsys.readouterr()
        assert exit_code(lambda: main([str(prepared)])) == 0
        printed = capsys.readouterr().out.splitlines()
        assert printed[0] == f"{prepared} (prepared; de en)"
        (head,) = [line.split() for line in printed if line.startswith("file ")]
        assert head == ["file", "rows", "tokens", "types", "<unk>", "empty", "SHA-256"]
        (row,) = [line.split() for line in printed if line.startswith("data-bin/test.de-en.de.bin")]
        assert (row[1], row[4], row[5], len(row[6])) == ("60", "0%", "0", 16)
        assert printed[-1] == "nothing is broken; no known corpus to compare with"

    def test_list_is_that_of_the_documentation(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--list"]) == 0
        printed = capsys.readouterr().out
        assert [line.split()[0] for line in printed.splitlines()] == list(known_corpora.corpora())
        page = Path(known_corpora.__file__).parents[2] / "docs" / "doctor_and_verify.md"
        assert f"$ fairseq-deep verify-data --list\n{printed}```" in page.read_text(encoding="utf-8")


def test_blocks_of_token_numbers(
    tmp_path: Path, verify: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the size of a block, the counts are those of the whole."""
    write(tmp_path / "dict.txt", ["a 1", "b 1"])
    write_rows(tmp_path / "train", 10, 4)
    whole = verify(tmp_path).file("train.bin")
    assert [whole[count] for count in ("rows", "tokens", "types", "unk")] == [10, 24, 1, 0]
    for size in (1, 7):
        monkeypatch.setattr(measure, "BLOCK", size)
        assert verify(tmp_path).file("train.bin") == whole
