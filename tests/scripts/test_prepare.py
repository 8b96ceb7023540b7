"""``fairseq-deep prepare``: a user's own files, and every kind of bad input."""

import gzip
import hashlib
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from fairseq.data import Dictionary, data_utils

from fairseq_plugins.tools.cli.main import main
from fairseq_plugins.tools.pipeline import commands
from fairseq_plugins.tools.pipeline.prepare_settings import PrepareSettings
from fairseq_plugins.tools.pipeline.workspace import SETTINGS, Workspace
from tests import toy
from tests.scripts.running import contents
from tests.texts import read as lines

LANGUAGES = ("de", "en")
PLAIN = "--tokeniser none --subwords none --workers 1".split()


def write(prefix: Path, german: Iterable[str], english: Iterable[str], end: str = "") -> Path:
    for language, sentences in zip(LANGUAGES, (german, english), strict=True):
        content = "".join(line + "\n" for line in sentences).encode()
        Path(f"{prefix}.{language}{end}").write_bytes(gzip.compress(content, mtime=0) if end else content)
    return prefix


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two training files, one of them gzipped, and two test sets with what other tools take for line ends."""
    directory = tmp_path_factory.mktemp("own text")
    for seed, name in enumerate(("one", "two", "first", "second"), start=1):
        pairs = [[f"{side}." for side in pair] for pair in toy.sentence_pairs(60, seed, longest=5)]
        pairs[3] = [f"{side}\u2028x\ry\x85z" for side in pairs[3]]
        write(directory / name, *zip(*pairs, strict=True), end=".gz" if name == "two" else "")
    return directory


@pytest.fixture
def binarised(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of each binarisation, which takes seconds and is left out."""
    asked: list[str] = []

    def run(*words: object, **_: object) -> None:
        Path(str(words[words.index("--destdir") + 1])).mkdir()
        asked.append(" ".join(map(str, words[len(commands.DEEP) :])))

    monkeypatch.setattr(commands, "run", run)
    return asked


def prepare(*words: object) -> int:
    return main(["prepare", *map(str, words)])


# ---- a user's own files ------------------------------------------------------------------------------------------


def call(text: Path) -> list[object]:
    """Everything that is not the default: a validation set out of the training text, cleaned by subwords."""
    sets = ["--train", text / "one", text / "two", "--valid", "every-10th"]
    sets += ["--test", f"news-2014={text / 'first'}", f"test={text / 'second'}", "--raw", f"test={text / 'first'}"]
    options = "--normalise train --aggressive --escape 0 --clean subwords --max-length 30 --ratio 2.5 --size 40"
    return [text / "out", *sets, *f"{options} --vocabulary-threshold 3 --workers 2".split()]


@pytest.fixture(scope="module")
def prepared(text: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        # A process of its own would import fairseq once more.
        patch.setattr(commands, "run", lambda *words, **_: main([str(word) for word in words[len(commands.DEEP) :]]))
        assert prepare(*call(text)) == 0
    return text / "out"


def test_line_k_is_line_k_in_every_file(prepared: Path, text: Path) -> None:
    names = ("train", "valid", "test", "news-2014")
    assert {path.name.split(".")[0] for path in (prepared / "text").iterdir()} == set(names)
    for name in names:
        for language in LANGUAGES:
            cut = lines(prepared / "text" / f"{name}.{language}")
            assert [line.replace("@@ ", "") for line in cut] == lines(prepared / "text" / f"{name}.tok.{language}")
        assert len(lines(prepared / "text" / f"{name}.de")) == len(lines(prepared / "text" / f"{name}.en"))
    # The validation text, cut off the training text, is cleaned, and its raw lines follow.
    for language in LANGUAGES:
        two = gzip.decompress((text / f"two.{language}.gz").read_bytes()).decode().split("\n")[:-1]
        raw = lines(prepared / "raw" / f"valid.{language}")
        assert raw == [line for line in (lines(text / f"one.{language}") + two)[9::10] if line in raw]
        tokens = lines(prepared / "text" / f"valid.tok.{language}")
        assert [re.sub(r"[\s.]", "", line) for line in tokens] == [re.sub(r"[\s.]", "", line) for line in raw]
        # Test sets are whole, and their references untouched; --raw names those of one.
        for name in ("news-2014", "test"):
            first = (text / f"first.{language}").read_bytes()
            assert (prepared / "raw" / f"{name}.{language}").read_bytes() == first
            assert len(lines(prepared / "text" / f"{name}.{language}")) == 60
    sides = [[len(line.split()) for line in lines(prepared / "text" / f"valid.{side}")] for side in LANGUAGES]
    assert all(max(pair) <= 2.5 * min(pair) for pair in zip(*sides, strict=True))


def test_data_bin_has_one_dictionary_and_every_sentence(prepared: Path) -> None:
    data_bin = prepared / "data-bin"
    assert (data_bin / "dict.de.txt").read_bytes() == (data_bin / "dict.en.txt").read_bytes()
    assert lines(prepared / "test_sets") == ["test\tnews-2014", "test1\ttest"]
    dictionary = Dictionary.load(str(data_bin / "dict.de.txt"))
    for subset, name in (("train", "train"), ("valid", "valid"), ("test", "news-2014"), ("test1", "test")):
        for language in LANGUAGES:
            data = data_utils.load_indexed_dataset(str(data_bin / f"{subset}.de-en.{language}"), dictionary)
            cut = lines(prepared / "text" / f"{name}.{language}")
            assert [len(sentence) - 1 for sentence in data] == [len(line.split()) for line in cut]


def test_rare_subwords_are_in_no_training_text(prepared: Path) -> None:
    known = dict(line.split() for line in lines(prepared / "vocabulary.de"))
    assert any(int(count) < 3 and len(token.removesuffix("@@")) > 1 for token, count in known.items())
    tokens = {token for line in lines(prepared / "text" / "train.de") for token in line.split()}
    merged = {token for token in tokens if len(token.removesuffix("@@")) > 1}
    assert merged
    assert all(int(known[token]) >= 3 for token in merged)


def test_a_finished_directory_stays_and_other_text_or_settings_are_refused(prepared, text, capsys):
    before = contents(prepared)
    description = {"tokeniser": "moses", "subwords": "subword_nmt", "lower_case": False, "truecased": False}
    assert json.loads(before["text.json"]) == {**description, "changed": {"valid": ["punctuation"]}}
    assert prepare(*call(text)) == 0
    assert capsys.readouterr().out.endswith(f"{prepared}: prepared already\n")
    described = (prepared / "text.json").read_bytes()
    (prepared / "text.json").write_bytes(described.replace(b"false", b"true"))
    assert prepare(*call(text)) == 2
    said = f"{prepared}/text.json says otherwise (lower_case: False, was True; truecased: False, was True); use another"
    assert capsys.readouterr().err.startswith(f"error: {said}")
    (prepared / "text.json").write_bytes(described)
    # A power cut may leave it so: whole lines, and fewer of them.
    codes = (prepared / "codes").read_bytes()
    (prepared / "codes").write_bytes(b"".join(codes.splitlines(keepends=True)[:20]))
    assert prepare(*call(text)) == 2
    line = f"error: {prepared}/data-bin/../codes: damaged or changed since it was prepared"
    assert capsys.readouterr().err.startswith(line)
    (prepared / "codes").write_bytes(codes)
    assert prepare(*call(text), "--size", "41") == 2
    good = (text / "second.en").read_bytes()
    (text / "second.en").write_bytes(good.replace(b"1", b"one", 1))
    assert prepare(*call(text)) == 2
    (text / "second.en").write_bytes(good)
    size, changed = capsys.readouterr().err.splitlines()
    assert size.startswith(f"error: {prepared} was made with other settings (SIZE=41; was SIZE=40); use another dir")
    assert changed.startswith(f"error: {prepared} was made with other settings (test.en=")
    assert contents(prepared) == before


@pytest.mark.usefixtures("binarised")
def test_text_in_subwords_gets_tokens_and_keeps_subwords(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, mark, cut, subwords in (
        ("bpe", "@@ ", "ei@@ ns , zw@@ ei", "subword_nmt"),
        ("sentencepiece", "▁", "▁ei ns ▁, ▁zw ei", "sentencepiece"),
    ):
        place, out = tmp_path / kind, tmp_path / kind / "out"
        place.mkdir()
        for name, line, count in (("cut", cut, 20), ("test", cut, 10), ("plain", "eins, zwei", 10)):
            write(place / name, [line] * count, [line] * count)
        words = [out, "--train", place / "cut", "--valid", "every-10th", "--test", f"test={place}/test", *PLAIN]
        given = ["--given-subwords", kind, *"--given-tokeniser moses --given-lower-case".split()]
        assert prepare(*words) == prepare(*words, *given) == 2
        undeclared, without_raw = capsys.readouterr().err.splitlines()
        assert undeclared.startswith(f"error: {place}/cut.de: contains '{mark}', a subword mark: set ")
        assert without_raw.startswith("error: no --raw test=PREFIX given: the text of test is in tokens or subwords")
        words += ["--raw", f"test={place}/plain", "--changed", "test=apostrophes,punctuation"]
        assert prepare(*words, *given) == 0
        for name, count in (("train", 18), ("valid", 2), ("test", 10)):
            assert lines(out / "text" / f"{name}.de") == [cut] * count
            assert lines(out / "text" / f"{name}.tok.de") == ["eins , zwei"] * count
        assert lines(out / "raw" / "test.en") == ["eins, zwei"] * 10
        description = {"tokeniser": "moses", "subwords": subwords, "lower_case": True, "truecased": False}
        changed = {"test": ["apostrophes", "punctuation"]}
        assert json.loads((out / "text.json").read_text()) == {**description, "changed": changed}


def test_settings_choose_the_stages(text: Path, tmp_path: Path, binarised: list[str]) -> None:
    """The files next to text and data-bin, and fairseq's arguments."""
    for name in ("codes", "codes.de", "codes.en"):
        (tmp_path / name).write_text("#version: 0.2\ne r</w>\n")
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("a 1\n")
    pieces, own, joined = "--subwords sentencepiece", f"--codes {tmp_path}/codes", "--joined-dictionary"
    models = {"sentencepiece.model.de", "sentencepiece.model.en"}
    for language in ("de", "en"):  # German on both sides: a model of the few English words has fewer pieces
        shutil.copy(text / "one.de", tmp_path / f"train.{language}")
    for options, made, asked in (
        ("--subwords none", set(), joined),
        (f"{pieces} --size 30 --joined 0", {"sentencepiece.model"}, ""),
        (f"{pieces} --size 28 --joint-codes 0", models, joined),
        (f"{own} --source-dict {dictionary}", {"codes"}, f"{joined} --srcdict {dictionary}"),
        (f"{own} --joint-codes 0 --types 99", {"codes.de", "codes.en"}, f"{joined} --nwordssrc 99 --nwordstgt 99"),
    ):
        out = tmp_path / str(len(binarised))
        words = ["--train", tmp_path / "train", "--valid", text / "first", "--workers", "1", *options.split()]
        assert prepare(out, *words) == 0
        files = {path.name for path in out.iterdir()} - {"raw", "text", "data-bin", ".lock"}
        assert files == {*made, "settings", "test_sets", "text.json"}, options
        assert binarised[-1].partition(f"--validpref {out}/text/valid")[2].strip() == asked


# ---- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("binarised")
def test_bad_text_is_one_line_and_mended_it_may_go_to_the_same_directory(text, tmp_path, capsys):
    bad, words = tmp_path / "bad", [tmp_path / "out", "--train", tmp_path / "bad", "--valid", text / "first"]
    write(bad, ["a", "b"], ["a"])
    assert prepare(*words) == 2
    counts = f"{bad}.de has 2 lines, {bad}.en has 1 lines; line k must translate line k"
    assert capsys.readouterr().err == f"error: {bad}.de: not parallel: {counts}\n"
    for language in LANGUAGES:
        shutil.copy(text / f"one.{language}", tmp_path / f"bad.{language}")
    assert prepare(*words, "--size", "9") == 0
    write(tmp_path / "long", ["a b"], ["a"])
    assert prepare(tmp_path / "none", "--train", tmp_path / "long", *words[3:]) == 2
    left = "no pair is left after cleaning: 1 with one side more than 1.5 times as long as the other"
    assert capsys.readouterr().err == f"error: {tmp_path}/none/work/tokens/train.de: {left}\n"


@pytest.fixture
def splits(tmp_path: Path) -> Path:
    """Training text of ten pairs and a blank one; ``valid`` and ``test`` share one and two of their four with it."""
    for name, numbers in (("train", range(10)), ("valid", (3, 20, 21, 22)), ("test", (3, 3, 30))):
        blank = [] if name == "valid" else [""]
        write(tmp_path / name, *([*blank, *(f"{end} {number}" for number in numbers)] for end in LANGUAGES))
    write(tmp_path / "half", ["de 1", "de 2"], ["en 2", "en 2"])
    return tmp_path


@pytest.mark.usefixtures("binarised")
def test_pairs_of_the_training_text_in_other_sets_are_counted(splits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tests = [f"test={splits}/test", f"again={splits}/valid", f"half={splits}/half"]
    for language in LANGUAGES:
        text = splits / f"test.{language}"
        text.write_bytes(text.read_bytes().replace(b"\n", b"\r\n"))
    sets = ["--train", splits / "train", "--valid", splits / "valid", "--test", *tests]
    assert prepare(splits / "out", *sets, *PLAIN) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "also in the training text: 1 pair of valid, 2 pairs of test, 1 pair of again, 1 pair of half" in printed


# ---- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("binarised")
def test_the_settings_of_earlier_releases_are_these_settings(splits: Path, tmp_path: Path) -> None:
    """Words of a directory that the release before typed settings has made; 16 digits of SHA-256 for each text."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / SETTINGS).write_text(
        "SOURCE=en\nTARGET=de\nNORMALISE=train\nTOKENISER=moses\nAGGRESSIVE=1\nESCAPE=0\nLOWER_CASE=0\nCLEAN=subwords\n"
        "MIN_LENGTH=1\nMAX_LENGTH=30\nRATIO=2.5\nSUBWORDS=bpe\nSIZE=40\nVOCABULARY_THRESHOLD=3\nJOINED=0\n"
        "valid=every-10\nmoses=Python\nJOINT_CODES=0\nTYPES=9\nGIVEN_TRUECASED=1\ntrain.de=b7\n"
    )
    words = "--source en --target de --normalise train --aggressive 1 --escape 0 --clean subwords --max-length 30"
    words += " --ratio 2.5 --size 40 --vocabulary-threshold 3 --joined 0 --valid every-10th --joint-codes 0 --types 9"
    assert prepare(tmp_path / "old", *words.split(), "--given-truecased", "--check") == 0
    assert prepare(splits / "out", "--train", splits / "train", "--valid", splits / "valid", *PLAIN) == 0
    for name in ("train.de", "train.en", "valid.de", "valid.en"):
        digits = hashlib.sha256((splits / name).read_bytes()).hexdigest()[:16]
        assert f"{name}={digits}" in lines(splits / "out" / SETTINGS)


def test_other_settings_are_refused_before_any_download(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remembered = PrepareSettings(size=3, workers=1).remembered(None).items()
    Workspace(tmp_path).remember([*remembered, ("train.de", "1"), ("CODES", "2")])
    changes = ((), ("--valid", "every-23rd"), ("--types", "5"))
    codes = [prepare(tmp_path, "--size", "3", *more, "--check") for more in changes]
    assert codes == [0, 2, 2]
    valid, types = capsys.readouterr().err.splitlines()
    assert "was made with other settings (valid=every-23; was valid=)" in valid
    assert "other settings (TYPES=5)" in types
