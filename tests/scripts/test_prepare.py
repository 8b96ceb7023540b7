"""prepare.sh: a user's own files, the published IWSLT'14 numbers, and every kind of bad input."""

from __future__ import annotations

import fcntl
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from fairseq.data import Dictionary, data_utils

from fairseq_plugins.cli.main import main
from fairseq_plugins.pipeline.commands import Commands
from tests import toy
from tests.scripts.fakes import without_binarising
from tests.scripts.running import contents, refusal, run

SCRIPT = "prepare.sh"


def write(path: Path, lines: list[str]) -> None:
    content = "".join(line + "\n" for line in lines).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def lines(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")[:-1]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two training files, one of them gzipped, and two test sets with what other tools take for line ends."""
    directory = tmp_path_factory.mktemp("own text")
    for seed, name in enumerate(("one", "two", "first", "second"), start=1):
        pairs = toy.sentence_pairs(60, seed, longest=5)
        sides = [[pair[side] + "." for pair in pairs] for side in (0, 1)]
        for side, language in zip(sides, ("de", "en"), strict=True):
            side[3] = f"{side[3]}\u2028x\ry\x85z"
            write(directory / f"{name}.{language}{'.gz' if name == 'two' else ''}", side)
    return directory


# ---- a user's own files ------------------------------------------------------------------------------------------


def call(text: Path) -> tuple[list[object], dict[str, str]]:
    """Everything that is not the default: a validation set out of the training text, cleaned by subwords."""
    arguments = [
        text / "out",
        f"train={text / 'one'}",
        f"train={text / 'two'}",
        "valid=every-10th",
        f"news-2014={text / 'first'}",
        f"test={text / 'second'}",
        f"test.raw={text / 'first'}",
    ]
    settings = {
        "NORMALISE": "train",
        "AGGRESSIVE": "1",
        "ESCAPE": "0",
        "CLEAN": "subwords",
        "MAX_LENGTH": "30",
        "RATIO": "2.5",
        "SIZE": "40",
        "VOCABULARY_THRESHOLD": "3",
        "WORKERS": "2",
    }
    return arguments, settings


@pytest.fixture(scope="module")
def prepared(text: Path) -> Path:
    arguments, settings = call(text)
    good = (text / "one.de").read_bytes()
    (text / "one.de").write_bytes(good + "schön\n".encode("latin-1"))
    assert refusal(SCRIPT, *arguments, **settings) == f"{text}/one.de: line 61: not UTF-8 (byte 0xf6)"
    # Mended, it may go to the same directory.
    (text / "one.de").write_bytes(good)
    ended = run(SCRIPT, *arguments, **settings)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return text / "out"


def test_text_that_has_changed_is_refused(prepared: Path, text: Path) -> None:
    before = contents(prepared)
    arguments, settings = call(text)
    good = (text / "second.en").read_bytes()
    (text / "second.en").write_bytes(good.replace(b"1", b"one", 1))
    try:
        assert refusal(SCRIPT, *arguments, **settings).startswith(f"{prepared} was made with other settings (test.en=")
    finally:
        (text / "second.en").write_bytes(good)
    assert contents(prepared) == before


def test_line_k_is_line_k_in_every_file(prepared: Path) -> None:
    files = contents(prepared / "text")
    assert {name.split(".")[0] for name in files} == {"train", "valid", "test", "news-2014"}
    for language in ("de", "en"):
        for name in ("train", "valid", "test", "news-2014"):
            tokens = lines(prepared / "text" / f"{name}.tok.{language}")
            assert [line.replace("@@ ", "") for line in lines(prepared / "text" / f"{name}.{language}")] == tokens
    for name in ("train", "valid", "test", "news-2014"):
        assert files[f"{name}.de"].count(b"\n") == files[f"{name}.en"].count(b"\n")


def test_what_was_cut_off_the_training_text_is_cleaned_and_its_raw_lines_follow(prepared: Path, text: Path) -> None:
    for language in ("de", "en"):
        two = gzip.decompress((text / f"two.{language}.gz").read_bytes()).decode().split("\n")[:-1]
        training = lines(text / f"one.{language}") + two
        every_10th = training[9::10]
        raw = lines(prepared / "raw" / f"valid.{language}")
        assert raw == [line for line in every_10th if line in raw]
        without = re.compile(r"[\s.]")
        assert [without.sub("", line) for line in lines(prepared / "text" / f"valid.tok.{language}")] == [
            without.sub("", line) for line in raw
        ]
    lengths = [[len(line.split()) for line in lines(prepared / "text" / f"valid.{side}")] for side in ("de", "en")]
    assert all(max(pair) <= 2.5 * min(pair) for pair in zip(*lengths, strict=True))


def test_test_sets_are_whole_and_their_references_untouched(prepared: Path, text: Path) -> None:
    for language in ("de", "en"):
        first = (text / f"first.{language}").read_bytes()
        assert (prepared / "raw" / f"news-2014.{language}").read_bytes() == first
        assert (prepared / "raw" / f"test.{language}").read_bytes() == first  # test.raw=
        assert len(lines(prepared / "text" / f"test.{language}")) == 60


def test_data_bin_has_one_dictionary_and_every_sentence(prepared: Path) -> None:
    data_bin = prepared / "data-bin"
    assert (data_bin / "dict.de.txt").read_bytes() == (data_bin / "dict.en.txt").read_bytes()
    assert lines(prepared / "test_sets") == ["test\tnews-2014", "test1\ttest"]
    dictionary = Dictionary.load(str(data_bin / "dict.de.txt"))
    for subset, name in (("train", "train"), ("valid", "valid"), ("test", "news-2014"), ("test1", "test")):
        for language in ("de", "en"):
            data = data_utils.load_indexed_dataset(str(data_bin / f"{subset}.de-en.{language}"), dictionary)
            text = [line.split() for line in lines(prepared / "text" / f"{name}.{language}")]
            assert [len(sentence) - 1 for sentence in data] == [len(tokens) for tokens in text]


def test_rare_subwords_are_in_no_training_text(prepared: Path) -> None:
    known = dict(line.split() for line in lines(prepared / "vocabulary.de"))
    assert any(int(count) < 3 and len(token.removesuffix("@@")) > 1 for token, count in known.items())
    tokens = {token for line in lines(prepared / "text" / "train.de") for token in line.split()}
    merged = {token for token in tokens if len(token.removesuffix("@@")) > 1}
    assert merged
    assert all(int(known[token]) >= 3 for token in merged)


# ---- what the text is in ------------------------------------------------------------------------------------------


def test_what_the_text_is_in_is_written_down(prepared: Path) -> None:
    assert json.loads((prepared / "text.json").read_text()) == {
        "tokeniser": "moses",
        "subwords": "subword_nmt",
        "lower_case": False,
        "truecased": False,
        "changed": {"valid": ["punctuation"]},
    }


@pytest.mark.parametrize(
    ("kind", "cut", "subwords"),
    [("bpe", "ei@@ ns , zw@@ ei", "subword_nmt"), ("sentencepiece", "▁ei ns ▁, ▁zw ei", "sentencepiece")],
)
def test_text_that_comes_in_subwords_gets_its_tokens_and_keeps_its_subwords(
    tmp_path: Path, kind: str, cut: str, subwords: str
) -> None:
    for language in ("de", "en"):
        write(tmp_path / f"cut.{language}", [cut] * 20)
        write(tmp_path / f"test.{language}", [cut] * 10)
        write(tmp_path / f"plain.{language}", ["eins, zwei"] * 10)
    arguments = [tmp_path / "out", f"train={tmp_path}/cut", "valid=every-10th", f"test={tmp_path}/test"]
    settings = {"TOKENISER": "none", "SUBWORDS": "none", "PYTHON": without_binarising(tmp_path)}
    asked = refusal(SCRIPT, *arguments, **settings)
    assert asked.startswith(f"{tmp_path}/cut.de: contains '{'@@ ' if kind == 'bpe' else '▁'}', a subword mark: set ")
    settings |= {"GIVEN_SUBWORDS": kind, "GIVEN_TOKENISER": "moses", "GIVEN_LOWER_CASE": "1"}
    asked = refusal(SCRIPT, *arguments, **settings)
    assert asked.startswith("no --raw test=PREFIX given: the text of test is in tokens or subwords")
    arguments += [f"test.raw={tmp_path}/plain", "test.changed=apostrophes,punctuation"]
    ended = run(SCRIPT, *arguments, **settings)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for name, count in (("train", 18), ("valid", 2), ("test", 10)):
        assert lines(tmp_path / "out" / "text" / f"{name}.de") == [cut] * count
        assert lines(tmp_path / "out" / "text" / f"{name}.tok.de") == ["eins , zwei"] * count
    assert lines(tmp_path / "out" / "raw" / "test.en") == ["eins, zwei"] * 10
    assert json.loads((tmp_path / "out" / "text.json").read_text()) == {
        "tokeniser": "moses",
        "subwords": subwords,
        "lower_case": True,
        "truecased": False,
        "changed": {"test": ["apostrophes", "punctuation"]},
    }


# ---- the published numbers ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_published_iwslt_numbers(real_corpus: Callable[[str], Path], tmp_path: Path) -> None:
    published = real_corpus("iwslt14_deen")
    for split in ("valid", "test"):
        for language in ("de", "en"):
            (tmp_path / f"{split}.{language}").write_bytes((published / f"{split}.tok.{language}").read_bytes())
    for language in ("de", "en"):  # Any other text than that of the two sets.
        (tmp_path / f"train.{language}").write_bytes((tmp_path / f"valid.{language}").read_bytes() * 2)
    out = tmp_path / "out"
    ended = run(
        SCRIPT,
        out,
        f"train={tmp_path / 'train'}",
        f"valid={tmp_path / 'valid'}",
        f"test={tmp_path / 'test'}",
        TOKENISER="none",
        CLEAN="none",
        CODES=str(published / "code"),
        JOINED="0",
        SOURCE_DICT=str(published / "dict.de.txt"),
        TARGET_DICT=str(published / "dict.en.txt"),
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    types = [len(Dictionary.load(str(out / "data-bin" / f"dict.{language}.txt"))) for language in ("de", "en")]
    assert types == [8848, 6632]
    for split in ("valid", "test"):
        for language in ("de", "en"):
            expected = (published / f"{split}.{language}").read_bytes()
            assert (out / "text" / f"{split}.{language}").read_bytes() == expected
    # Sentences, tokens and unknown words as in the public logs of fairseq's own preparation.
    found = re.findall(r"/(valid|test)\.(de|en): (\d+) sents, (\d+) tokens, (\S+)%", ended.stdout)
    assert set(found) == {
        ("valid", "de", "7283", "182592", "0.0192"),
        ("valid", "en", "7283", "178622", "0.00448"),
        ("test", "de", "6750", "161838", "0.0636"),
        ("test", "en", "6750", "156928", "0.00892"),
    }


# ---- other kinds of subwords, without making them ----------------------------------------------------------------


def commands(text: Path, *words: str, **settings: str) -> str:
    sets = [f"train={text / 'one'}", f"valid={text / 'first'}"]
    ended = run(SCRIPT, text / "dry", *sets, *words, DRY_RUN="1", **settings)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not (text / "dry").exists()
    return ended.stdout


def test_settings_choose_the_commands(text: Path) -> None:
    pieces = commands(text, SUBWORDS="sentencepiece", SIZE="77", TOKENISER="none", CLEAN="none", JOINED="0")
    assert "learn-sentencepiece --size 77 " in pieces
    assert "tokenise --language en --kind none " in pieces
    assert " clean " not in pieces
    assert "--joined-dictionary" not in pieces
    bare = commands(text, SUBWORDS="none", LOWER_CASE="1")
    assert "-bpe" not in bare
    assert "sentencepiece" not in bare
    assert "--lower-case" in bare
    assert "--joined-dictionary" in bare
    given = commands(text, CODES="my codes", JOINED="1", SOURCE_DICT="d.txt")
    assert "learn-bpe" not in given
    assert "--joined-dictionary --srcdict d.txt" in given


def test_subwords_of_each_language_by_itself(text: Path) -> None:
    pieces = commands(text, SUBWORDS="sentencepiece", JOINT_CODES="0", SIZE="77")
    for language in ("de", "en"):
        model = f"{text}/dry/sentencepiece.model.{language}"
        tokens = f"{text}/dry/work/cleaned/train.{language}"
        assert f"learn-sentencepiece --size 77 '{tokens}' '{model}.partial'" in pieces
        assert f"apply-sentencepiece --model '{model}' --workers" in pieces
    given = commands(text, JOINT_CODES="0", CODES="mine", VOCABULARY_THRESHOLD="5", TYPES="99")
    assert "learn-bpe" not in given
    for language in ("de", "en"):
        assert f"copy mine.{language} " in given
        assert f"/codes.{language}' --vocabulary" in given
    assert "--joined-dictionary --nwordssrc 99 --nwordstgt 99" in given


def test_help_is_the_head_of_the_script() -> None:
    ended = run(SCRIPT, "--help")
    assert ended.returncode == 0
    assert ended.stdout.startswith("Prepare a parallel corpus for training")
    assert ended.stdout.endswith("time and disk.\n")


# ---- bad input ---------------------------------------------------------------------------------------------------

BASE = "{out} --train {text}/one --valid {text}/first"
REFUSED = (
    ("train=x", "the first argument must be the output directory, not 'train=x'"),
    ("", "'' cannot be the output directory"),
    ("/", "'/' cannot be the output directory"),
    ("{out},b", "{out},b: fairseq does not support a comma in a path; use another directory"),
    ("{out} --test text", "'text' is not of the form NAME=PREFIX"),
    ("{out} --valid x", "no --train PREFIX given"),
    ("{out} --train x", "no --valid PREFIX given (or --valid every-23rd: that part of the training pairs)"),
    ("{out} --train x --valid every-1st", "--valid every-1st would leave no training pair"),
    (f"{BASE} --valid y", "valid is given twice; only --train can be repeated"),
    (
        f"{BASE} --test a:b=x",
        "'a:b' cannot be the name of a set; legal: letters, digits, '-', '_' and '.', no .tok at the end",
    ),
    (f"{BASE} --raw test=x", "--raw test= is given, but no set test"),
    (f"{BASE} --changed valid=case", "--changed valid= needs --raw valid="),
    (
        f"{BASE} --raw valid=x --changed valid=case",
        "--changed valid: unknown change 'case'; legal values: apostrophes, punctuation",
    ),
    (f"{BASE} --given-subwords bpe", "--given-subwords bpe needs --tokeniser none --subwords none"),
    (
        f"{BASE} --given-tokeniser moses",
        "--given-tokeniser moses needs --tokeniser none: the text is tokenised already",
    ),
    (f"{BASE} --test test={{text}}/third", "{text}/third.de: no such file"),
    (f"{BASE} --target de", "--source and --target are both 'de'; name two languages"),
    (
        f"{BASE} --subwords bep",
        "unknown --subwords 'bep' (did you mean 'bpe'?); legal values: bpe, none, sentencepiece",
    ),
    (f"{BASE} --escape no", "--escape no: not 0 or 1 (fairseq-deep prepare --help says more)"),
    (f"{BASE} --size 10k", "--size 10k: not a whole number of at least 1 (fairseq-deep prepare --help says more)"),
    (f"{BASE} --ratio a", "--ratio a: not a legal value"),
    (f"{BASE} --ratio 0.5", "--ratio 0.5: not a number of at least 1 (fairseq-deep prepare --help says more)"),
    (f"{BASE} --target-dict d", "--target-dict needs --joined 0; give a joined dictionary as --source-dict"),
    (f"{BASE} --codes {{text}}/none", "{text}/none: no such file"),
    (f"{BASE} --joint-codes 0 --codes {{text}}/none", "{text}/none.de: no such file"),
    (f"{BASE} --subwords none --codes c", "--codes is set, but --subwords is none"),
    (f"{BASE} --subwords none --joint-codes 0", "--joint-codes 0 is set, but --subwords is none"),
    (f"{BASE} --clean none --max-length 80", "--min-length, --max-length or --ratio is set, but --clean is none"),
    (f"{BASE} --tokeniser none --aggressive", "--aggressive and --escape 0 need --tokeniser moses"),
    (
        f"{BASE} --types 9 --source-dict d",
        "--types and a given dictionary (--source-dict, --target-dict) are mutually exclusive",
    ),
    (f"{BASE} --subwords none --vocabulary-threshold 5", "--vocabulary-threshold needs --subwords bpe"),
)


def test_what_cannot_be_is_refused_before_anything_is_made(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def filled(value: str) -> str:
        return value.replace("{text}", str(text)).replace("{out}", str(tmp_path / "out"))

    wrong = []
    for words, line in REFUSED:
        code = main(["prepare", *map(filled, words.split(" "))])
        if (code, *capsys.readouterr()) != (2, "", f"error: {filled(line)}\n"):
            wrong.append(words)
    assert wrong == []
    assert list(tmp_path.iterdir()) == []


def test_the_script_asks_for_what_it_was_told(tmp_path: Path) -> None:
    assert refusal(SCRIPT) == "no directory given; scripts/prepare.sh --help says more"
    assert refusal(SCRIPT, "--hlep").startswith("unknown option '--hlep'")
    sets = [f"{tmp_path}/out", "train=t", "valid=v"]
    more = ["b=x", "b.raw=y", "b.changed=case"]
    assert refusal(SCRIPT, *sets, *more).startswith("--changed b: unknown change 'case'")
    for words, settings in (([], {"GIVEN_SUBWORDS": "bpe"}), (["--given-subwords", "bpe"], {})):
        refused = refusal(SCRIPT, *sets, *words, **settings)
        assert refused == "--given-subwords bpe needs --tokeniser none --subwords none"


def test_a_switch_is_an_option_or_has_a_value(text: Path) -> None:
    plain = commands(text)
    assert "--lower-case" not in plain
    assert commands(text, LOWER_CASE="1") == commands(text, "--lower-case") == commands(text, "--lower-case=1") != plain
    assert commands(text, "--escape", "0") == commands(text, ESCAPE="0") != plain == commands(text, "--escape")


@pytest.mark.parametrize("kind", ["empty", "unequal", "latin-1", "nothing left"])
def test_bad_text_is_one_line_that_names_the_file(
    text: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    german = {"empty": b"", "unequal": b"a\nb\n", "latin-1": b"sch\xf6n\n", "nothing left": b"a b\n"}[kind]
    (tmp_path / "bad.de").write_bytes(german)
    (tmp_path / "bad.en").write_bytes(b"a\n")
    assert main(["prepare", f"{tmp_path}/out", "--train", f"{tmp_path}/bad", "--valid", f"{text}/first"]) == 2
    assert (
        capsys.readouterr().err.removeprefix("error: ").removesuffix("\n")
        == {
            "empty": f"{tmp_path}/bad.de: empty",
            "unequal": f"{tmp_path}/bad.de: not parallel: {tmp_path}/bad.de has 2 lines, "
            f"{tmp_path}/bad.en has 1 lines; line k must translate line k",
            "latin-1": f"{tmp_path}/bad.de: line 1: not UTF-8 (byte 0xf6)",
            "nothing left": f"{tmp_path}/out/work/tokens/train.de: no pair is left after cleaning: "
            "1 with one side more than 1.5 times as long as the other",
        }[kind]
    )
    assert not (tmp_path / "out" / "data-bin").exists()


@pytest.fixture
def splits(tmp_path: Path) -> Path:
    """Training text of ten pairs; ``valid`` and ``test`` share one and two of their four with it."""
    for language in ("de", "en"):
        write(tmp_path / f"train.{language}", [f"{language} {number}" for number in range(10)])
        write(tmp_path / f"valid.{language}", [f"{language} {number}" for number in (3, 20, 21, 22)])
        write(tmp_path / f"test.{language}", ["", f"{language} 3", f"{language} 3", f"{language} 30"])
    write(tmp_path / "half.de", ["de 1", "de 2"])
    write(tmp_path / "half.en", ["en 2", "en 2"])
    return tmp_path


def stopped(*_: object, **__: object) -> None:
    raise SystemExit


def prepared_splits(splits: Path, *words: str) -> int:
    return main(["prepare", f"{splits}/out", *words, "--tokeniser", "none", "--subwords", "none", "--workers", "1"])


def test_pairs_of_the_training_text_in_other_sets_are_counted(
    splits: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Commands, "deep", stopped)
    words = ["--train", f"{splits}/train", "--valid", f"{splits}/valid", "--test", f"test={splits}/test"]
    with pytest.raises(SystemExit):
        prepared_splits(splits, *words, f"again={splits}/valid", f"half={splits}/half")
    printed = capsys.readouterr().out.splitlines()
    assert "also in the training text: 1 pairs of valid, 2 pairs of test, 1 pairs of again, 1 pairs of half" in printed
    assert "again is the text of valid: checkpoints are chosen on it" in printed


@pytest.mark.parametrize("name", ["valid", "test"])
def test_the_training_text_is_no_validation_and_no_test_set(
    splits: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for language in ("de", "en"):
        write(splits / f"copy.{language}", lines(splits / f"train.{language}"))
    prefixes = {"valid": "valid", "test": "test", name: "copy"}
    words = ["--train", f"{splits}/valid", f"{splits}/train", "--test", f"test={splits}/{prefixes['test']}"]
    if name == "test":
        words[1] = f"{splits}/half"
    assert prepared_splits(splits, *words, "--valid", f"{splits}/{prefixes['valid']}") == 2
    advice = ", or every-100th" if name == "valid" else ""
    line = (
        f"error: {splits}/copy: the text of {name} is the training text {splits}/train; give one that the model does "
    )
    assert capsys.readouterr().err == f"{line}not see in training{advice}\n"
    assert not (splits / "out" / "settings").exists()


def test_text_where_the_results_are_written_is_refused(splits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be taken for the finished text in subwords."""
    for language in ("de", "en"):
        write(splits / "out" / "text" / f"train.{language}", ["a"])
    assert prepared_splits(splits, "--train", f"{splits}/out/text/train", "--valid", f"{splits}/valid") == 2
    line = f"error: {splits}/out/text/train.de: the results are written there; use another directory than {splits}/out"
    assert capsys.readouterr().err == f"{line}\n"


def test_a_second_job_is_kept_out(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    with open(tmp_path / "out" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["prepare", f"{tmp_path}/out", "--train", f"{text}/one", "--valid", f"{text}/first"]) == 2
    assert (
        capsys.readouterr().err
        == f"error: {tmp_path}/out: in use by another job; wait for it, or use another directory\n"
    )
