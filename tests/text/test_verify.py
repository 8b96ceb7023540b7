"""``fairseq-deep verify-data``: real corpora are named, and every way in which data go wrong is."""

from __future__ import annotations

import gzip
import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fairseq_plugins.process import exit_code
from fairseq_plugins.text import measure, verify
from tests import toy
from tests.texts import read, write

Corpus = Callable[[str], Path]


class Result:
    """What ``verify-data`` finds in a directory."""

    def __init__(self, directory: Path, expect: str | None = None) -> None:
        self.files = measure.measure(directory)
        self.corpus = expect or verify.recognised(self.files)
        self.verdicts = verify.judged(directory, self.files, self.corpus)

    def says(self, *levels: str) -> list[str]:
        return [f"{verdict.about}: {verdict.message}" for verdict in self.verdicts if verdict.level in levels]

    @property
    def bad(self) -> list[str]:
        return self.says("broken", "differs")

    def file(self, path: str) -> measure.File:
        return next(file for file in self.files if file.path == path)


# ---- real text ---------------------------------------------------------------------------------------------------


def test_canonical_iwslt_agrees_in_every_published_count(real_corpus: Corpus, tmp_path: Path) -> None:
    """In a prepared directory with the canonical test and validation sets and dictionaries."""
    source, directory = real_corpus("iwslt14_deen"), tmp_path / "iwslt 14"
    (directory / "text").mkdir(parents=True)
    flags = ["-s", "de", "-t", "en", "--destdir", str(directory / "data-bin")]
    flags += ["--srcdict", str(source / "dict.de.txt"), "--tgtdict", str(source / "dict.en.txt")]
    for split in ("valid", "test"):
        for language in ("de", "en"):
            shutil.copy(source / f"{split}.{language}", directory / "text")
            shutil.copy(source / f"{split}.tok.{language}", directory / "text")
        flags += [f"--{split}pref", str(directory / "text" / split)]
    shutil.copy(source / "code", directory / "codes")
    toy.run_preprocess(flags)
    result = Result(directory)
    assert (result.corpus, result.bad) == ("iwslt14-de-en", [])
    # Rows, tokens and unknown words of public logs of fairseq-preprocess.
    for name, published in {
        "valid.de-en.de": (7283, 182592, 35),
        "valid.de-en.en": (7283, 178622, 8),
        "test.de-en.de": (6750, 161838, 103),
        "test.de-en.en": (6750, 156928, 14),
    }.items():
        file = result.file(f"data-bin/{name}.bin")
        assert (file.rows, file.tokens, file.unk) == published
    assert result.file("text/test.de").sha256 == hashlib.sha256((directory / "text/test.de").read_bytes()).hexdigest()
    same = result.says("same")
    for path in ("text/test.tok.en", "codes", "data-bin/dict.de.txt"):
        assert f"{path}: exactly the published file" in same
    assert "data-bin/test.de-en.de.bin: 161,838 tokens" in same
    assert "dictionary: 8,848 and 6,632 types" in same


def test_multi30k_is_recognised_by_its_text(real_corpus: Corpus) -> None:
    result = Result(real_corpus("multi30k"))
    assert (result.corpus, result.bad) == ("multi30k-de-en", [])
    # Compressed text is summed as text.
    assert "train.de.gz: exactly the published file" in result.says("same")


def test_published_test_sets_are_known_by_name_and_checksum(real_corpus: Corpus, tmp_path: Path) -> None:
    news = real_corpus("wmt_news")
    assert Result(news).bad == []
    for language in ("de", "en"):
        shutil.copy(news / f"newstest2014.{language}", tmp_path / f"test.{language}")
        write(tmp_path / f"newstest2014-filtered.{language}", ["a"] * 2737)
        write(tmp_path / f"newstest2018.{language}", ["a"] * 3000)
    shutil.copy(news / "newstest2011.de", tmp_path / "newstest2012.de")
    shutil.copy(news / "newstest2012.de", tmp_path / "newstest2012.en")
    result = Result(tmp_path)
    assert "test.de: exactly newstest2014 in de" in result.says("same")
    assert "newstest2014-filtered.de: 2,737 rows" in result.says("same")
    assert result.bad == [
        "newstest2012.de: exactly newstest2011 in de",
        "newstest2012.en: exactly newstest2012 in de",
        "newstest2018.de: 3,000 rows instead of 2,998",
        "newstest2018.en: 3,000 rows instead of 2,998",
    ]


# ---- made-up corpora ---------------------------------------------------------------------------------------------


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A prepared directory of the toy corpus, whole."""
    directory = tmp_path / "toy corpus"
    toy.binarise(directory)
    return directory


def test_unknown_corpus_is_only_counted(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "BLOCK", 7)
    for language in ("de", "en"):
        lines = read(prepared / "text" / f"train.{language}")
        # The tokenised training text may be longer than the cleaned one; a name may have a dot.
        write(prepared / "text" / f"train.tok.{language}", [*lines, "drei"])
        for name in (f"my.test.{language}", f"my.test.tok.{language}"):
            shutil.copy(prepared / "text" / f"test.{language}", prepared / "text" / name)
        for ending in ("bin", "idx"):
            stem = prepared / "data-bin" / f"test.de-en.{language}.{ending}"
            shutil.copy(stem, stem.with_name(stem.name.replace("test.", "test1.")))
    (prepared / "test_sets").write_text("test\ttest\ntest1\tmy.test\n", encoding="utf-8")
    result = Result(prepared)
    assert (result.corpus, result.bad) == (None, [])
    text, binary = result.file("text/train.de"), result.file("data-bin/train.de-en.de.bin")
    words = [line.split() for line in read(prepared / "text" / "train.de")]
    assert text.rows == binary.rows == len(words) == 120
    assert text.tokens == binary.tokens == sum(map(len, words)) + 120
    assert text.types == binary.types == len({word for line in words for word in line})
    assert (text.unk, binary.unk, binary.empty) == (None, 0, 0)
    kinds = [file.kind for file in result.files if file.split == "my.test"]
    assert kinds == ["text", "text", "tok", "tok", "binarised", "binarised"]


def test_forms_of_one_text_that_differ_are_named(prepared: Path) -> None:
    first, *others = read(prepared / "text" / "train.de")
    write(prepared / "text" / "train.de", [first + " drei", *others])
    write(prepared / "text" / "test.en", read(prepared / "text" / "test.en")[:-1])
    for language in ("de", "en"):
        write(prepared / "raw" / f"valid.{language}", read(prepared / "text" / f"valid.{language}")[1:])
    assert [line.partition(" tokens, but")[0] for line in Result(prepared).bad] == [
        "test: unequal numbers of rows: text/test.de has 60, text/test.en has 59",
        "data-bin/test.de-en.en.bin: 60 rows, but text/test.en has 59",
        f"data-bin/train.de-en.de.bin: {len(' '.join([first, *others]).split()) + 120}",
        "raw/valid.de: 19 rows, but text/valid.de has 20",
        "raw/valid.en: 19 rows, but text/valid.en has 20",
    ]


def test_text_of_a_language_model(tmp_path: Path) -> None:
    """As prepare_enwik8.sh writes it; an empty line is text there, too."""
    for split, lines in (("train", ["1 2 3", "", "2"]), ("valid", ["1 1"])):
        write(tmp_path / "text" / f"{split}.txt", lines)
    flags = ["--only-source", "--destdir", str(tmp_path / "data-bin")]
    flags += ["--trainpref", str(tmp_path / "text" / "train.txt"), "--validpref", str(tmp_path / "text" / "valid.txt")]
    toy.run_preprocess(flags)
    result = Result(tmp_path)
    assert result.bad == []
    for path in ("text/train.txt", "data-bin/train.bin"):
        assert [getattr(result.file(path), count) for count in ("rows", "tokens", "empty")] == [3, 7, 1]
    write(tmp_path / "text" / "train.txt", ["1 2 3", "2"])
    assert Result(tmp_path).bad == ["data-bin/train.bin: 3 rows, but text/train.txt has 2"]


# ---- damage ------------------------------------------------------------------------------------------------------

BAD_TEXT: Sequence[tuple[bytes, str]] = (
    (b"ein\nf\xfcnf\n\xfc\n", "line 2 is not UTF-8 (byte 0xfc)"),
    (b"", "the file is empty"),
    (b"ein\n \nzwei\n\n", "2 empty lines"),
    (b"ein\rzwei\ndrei\r\n", "1 carriage returns, which fairseq reads as ends of lines"),
    (
        b"\xef\xbb\xbfein\n\xef\xbb\xbfdrei\n",
        "line 1 begins with a byte order mark, which fairseq reads as a part of the first word",
    ),
    (b"ein\nzw", "the last line has no end: the file may be truncated"),
)


def test_bad_text_is_named(tmp_path: Path) -> None:
    for number, (content, said) in enumerate(BAD_TEXT):
        place = tmp_path / str(number)
        write(place / "test.en", ["word"] * (content.count(b"\n") + (not content.endswith(b"\n"))))
        (place / "test.de").write_bytes(content)
        assert [line for line in Result(place).bad if "unequal" not in line] == [f"test.de: {said}"]
        # Published references keep their carriage returns and marks; prepare copies them byte for byte.
        (place / "raw").mkdir()
        for path in place.glob("test.*"):
            path.rename(place / "raw" / path.name)
        stays = ["carriage", "byte order mark", "empty lines"]
        assert (Result(place).bad == []) == any(word in said for word in stays)


def test_a_missing_language_and_a_truncated_gzip(tmp_path: Path) -> None:
    for name in ("train.de", "train.en", "test.de", "test.en"):
        write(tmp_path / name, ["a"])
    (tmp_path / "test.en").unlink()
    assert Result(tmp_path).bad == ["test.de: no such file in en"]
    packed = gzip.compress(b"".join(b"line %d\n" % number for number in range(5000)))
    (tmp_path / "test.en.gz").write_bytes(packed[: len(packed) // 2])
    assert "test.en.gz: not a whole gzip file" in Result(tmp_path).bad


def test_binarised_text_that_fairseq_cannot_read(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for ending in ("bin", "idx"):
        path = prepared / "data-bin" / f"test.de-en.en.{ending}"
        whole = path.read_bytes()
        capsys.readouterr()
        for content in (b"", b"MMIDIDX\x00\x00\x01", whole[:-10]):
            path.write_bytes(content)
            first = Result(prepared).bad[0]
            assert first.startswith("data-bin/test.de-en.en.bin: ")
            # Nothing of the destructors of fairseq's half-made objects.
            assert capsys.readouterr().err == ""
        assert ending == "idx" or first.endswith(": the file is truncated")
        path.unlink()
        assert "data-bin/test.de-en.en.bin: the .bin or the .idx file is missing" in Result(prepared).bad
        path.write_bytes(whole)


def test_another_dictionary_or_none(prepared: Path) -> None:
    path = prepared / "data-bin" / "dict.de.txt"
    words = [line for line in read(path) if not line.startswith("madeupword")]
    write(path, words)
    assert Result(prepared).bad == []
    # Without the rarest word, the last.
    write(path, words[:-1])
    bad = Result(prepared).bad
    assert bad
    assert all("it was binarised with another dictionary" in line for line in bad)
    for content in (b"a b c\n", b"a 1\na 1\n", b"\xfc 1\n"):
        (prepared / "data-bin" / "dict.en.txt").write_bytes(content)
        bad = Result(prepared).bad
        assert any(line.startswith("data-bin/dict.en.txt: not a dictionary: ") for line in bad)
        assert any("there is no usable dictionary for it (dict.en.txt)" in line for line in bad)


# ---- training text in other sets ---------------------------------------------------------------------------------


def test_pairs_of_the_training_text_in_other_sets(tmp_path: Path) -> None:
    for language in ("de", "en"):
        write(tmp_path / f"train.{language}", (f"{language} {number}" for number in range(10)))
        write(tmp_path / f"test.{language}", [f"{language} 3", f"{language} 3", f"{language} 4", f"{language} 30"])
        write(tmp_path / f"valid.{language}", [f"{language} 40", f"{'de' if language == 'de' else 'other'} 5"])
        write(tmp_path / f"dev2.{language}", read(tmp_path / f"valid.{language}"))
    assert Result(tmp_path).says("note")[:2] == [
        "dev2: the same text as valid, on which checkpoints are chosen",
        "test: 3 of 4 pairs are also in train",
    ]
    # Other forms of them, and test sets that have the first part of their names in common.
    for language in ("de", "en"):
        write(tmp_path / f"train.bpe.{language}", [f"{language} @@3"])
        for name in ("test.bpe", "test.2013"):
            write(tmp_path / f"{name}.{language}", [f"{language} 3"])
    notes = [
        f"{name}: {count} pairs are also in train" for name, count in (("test", "3 of 4"), ("test.bpe.de", "1 of 1"))
    ]
    assert {*notes, notes[1].replace("bpe", "2013")} <= {*Result(tmp_path).says("note")}


def test_the_training_text_is_no_test_set(prepared: Path) -> None:
    assert Result(prepared).bad == []
    place = prepared / "data-bin"
    for path in place.glob("train.*"):
        for name in ("test", "valid"):
            shutil.copy(path, place / path.name.replace("train", name))
    result = Result(place)
    said = "the same text as train: what is measured on it says nothing"
    assert result.bad == [f"test: {said}", f"valid: {said}"]
    assert [line.split(" of ")[0] for line in result.says("note")[:2]] == ["test: 120", "valid: 120"]


# ---- the known corpora -------------------------------------------------------------------------------------------


def test_a_corpus_is_recognised_by_the_size_of_its_training_set() -> None:
    for rows, name in (
        (160239, "iwslt14-de-en"),
        (3960793, "wmt17-en-de"),
        (4500966, "wmt16-en-de-google"),
        (4520620, "wmt14-en-de"),
        (3940217, "wmt14-en-de"),
        (4590101, "wmt17-en-de"),
        (4505000, "wmt14-en-de"),
        (1000000, None),
    ):
        sides = [measure.File(f"train.{side}", "text", "train", side, rows=rows) for side in ("de", "en")]
        assert verify.recognised(sides) == name, rows


def test_a_corpus_is_compared_by_its_counts() -> None:
    """WMT'17 has as many training rows as prepare-wmt14en2de.sh leaves; enwik8's smaller parts are counted in bytes."""

    def said(name: str, *files: measure.File) -> list[str]:
        return [verdict.message for verdict in verify.compare(verify.known()["corpora"][name], files)]

    sides = [measure.File(f"train.{side}", "text", "train", side, rows=3960793) for side in ("de", "en")]
    assert said("wmt14-en-de", *sides)[0] == "3,960,793 rows instead of 3,895,000 to 3,906,000"
    assert said("wmt17-en-de", *sides)[0].startswith("3,960,793 rows: cleaned as prepare-wmt14en2de.sh does")
    assert said("wmt14-en-fr", *sides) == ["de and en; wmt14-en-fr has en and fr"]
    test = measure.File("text/test.de", "text", "test", "de", rows=6750, tokens=161839)
    valid = measure.File("text/valid.en", "text", "valid", "en", rows=7277)
    assert said("iwslt14-de-en", test, valid) == [
        "not the published file: its SHA-256 differs",
        "6,750 rows",
        "161,839 tokens instead of 161,838: tokenised or split into subwords differently",
        "not the published file: its SHA-256 differs",
        "7,277 rows instead of 7,283",
    ]
    part = measure.File("data-bin/test.bin", "binarised", "test", rows=9, tokens=5000001)
    dictionary = measure.File("data-bin/dict.txt", "dictionary", types=208)
    assert said("enwik8", part, dictionary) == ["5,000,001 tokens", "208 types"]
    assert "nothing in it agrees with wikitext-103" in said("wikitext-103", part, dictionary)


def test_facts_are_consistent() -> None:
    """WMT's rows: Europarl v7, Common Crawl, News Commentary v9 or v12; one line in 100 goes to validation."""
    corpora = verify.known()["corpora"]
    for corpus in corpora.values():
        assert all(len(bytes.fromhex(digest)) == 32 for digest in corpus.get("sha256", {}).values())
        for form in (form for forms in corpus["splits"].values() for form in forms):
            assert set(form.get("tokens", {})) <= set(corpus["languages"] or [""])
        for form in corpus.get("dictionaries", ()):
            assert set(form["types"]) == set(corpus["languages"] or [""])
    for name, commentary in (("wmt14-en-de", 201288), ("wmt17-en-de", 270769)):
        total = 1920209 + 2399123 + commentary
        rows = {split: [form["rows"] for form in corpora[name]["splits"][split]] for split in ("train", "valid")}
        assert {total, total - total // 100} <= {count for count in rows["train"] if isinstance(count, int)}
        assert total // 100 in rows["valid"]
    words = {"train": 101425671, "valid": 213886, "test": 241211}  # of WikiText-103's release, without <eos>
    for split, [form] in corpora["wikitext-103"]["splits"].items():
        assert form["tokens"][""] == words[split] + form["rows"]


# ---- as a user calls it ------------------------------------------------------------------------------------------


def test_what_is_printed(prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert exit_code(lambda: verify.main([str(prepared)])) == 0
    head, *printed = capsys.readouterr().out.splitlines()
    assert head.split() == ["file", "rows", "tokens", "types", "<unk>", "empty", "SHA-256"]
    [row] = [line.split() for line in printed if line.startswith("data-bin/test.de-en.de.bin")]
    assert (row[1], row[4], row[5], len(row[6])) == ("60", "0%", "0", 16)
    assert printed[-1] == "nothing is broken"
    assert exit_code(lambda: verify.main([str(prepared), "--expect", "multi30k-de-en"])) == 1
    printed = capsys.readouterr().out.splitlines()
    assert "  differs  text/train.de: 120 rows instead of 29,000" in printed
    assert printed[-1].startswith("differing or broken: ")
    (tmp_path / "empty").mkdir()
    for argv, line in (
        (["nowhere"], "error: nowhere: no such directory"),
        ([str(tmp_path / "empty")], f"error: {tmp_path / 'empty'}: contains no corpus: no text/, "),
        (["x", "--expect", "iwslt14-de"], "error: unknown --expect 'iwslt14-de' (did you mean 'iwslt14-de-en'?)"),
    ):
        assert exit_code(lambda argv=argv: verify.main(argv)) == 2
        [said] = capsys.readouterr().err.splitlines()
        assert said.startswith(line)
