"""Hostile text and paths: each sentence in gives one out, in order, or one line says where; nothing is executed."""

import io
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from fairseq.data import Dictionary, data_utils

from fairseq_plugins.errors import EXIT_CODE
from fairseq_plugins.tools.pipeline.configuration import quoted
from fairseq_plugins.tools.translator import translate
from tests.processes import Command, Ended
from tests.translator.conftest import Made

HOSTILE = {
    "nothing": "",
    "white space": " \t\u00a0\u3000 ",
    "NUL": "eins\0zwei",
    "only NUL": "\0",
    "controls": "eins \x01\x07\x08\x1b[31m zwei \x7f",
    "other ends of lines": "eins\x0bzwei\x0cdrei\x1cvier\x1dfünf\x1esechs\x85sieben",
    "U+2028 and U+2029": "eins\u2028zwei\u2029drei",
    "only U+2028": "\u2028",
    "byte order mark inside": "eins\ufeffzwei \ufeff",
    "right to left": "\u202eeins\u202c \u200fzwei\u200e \u2067drei\u2069",
    "combining": "e\u0301i\u0308ns z\u0316\u0317\u0318wei \u0301",
    "many combining": "e" + "\u0301" * 500,
    "joiners": "👩\u200d👩\u200d👧 eins\u200bzwei\u00adneun",
    "beyond the BMP": "𝔢𝔦𝔫𝔰 🇩🇪 \U0010fffd",
    "no characters": "eins \ufffe \uffff \U0010ffff zwei",
    "Greek": "ένα δύο τρία",
    "Arabic": "واحد اثنان ثلاثة",
    "Hindi": "एक दो तीन।",
    "Chinese": "一二三。四五六！",
    "Thai": "หนึ่งสองสาม",
    "subword marks": "eins@@ zw@@ ei @@ drei@@",
    "pieces": "▁eins ▁ zwei▁drei ▁",
    "special words": "<s> eins </s> zwei <pad> drei <unk>",
    "only the end": "</s>",
    "only the pad": "<pad> <pad>",
    "unknown": "<unk>",
    "other tools' words": "<blank> <mask> </w> madeupword0000 #fairseq:overwrite DOTMULTI",
    "entities": "&amp; &#10; &#124; &lt;s&gt; &apos;",
    "fairseq's output": "H-0\t-0.5\teins",
    "tabs": "eins\tzwei\tdrei",
    "commands": "$(touch executed) `touch executed` ; touch executed | {} %s \\ \\n '\"",
    "a long word": "eins" * 500,
}
"""A value is one sentence, with every character in it."""
ANCHOR = "Ja, eins zwei!"
LINES = [*(line for hostile in HOSTILE.values() for line in (ANCHOR, hostile)), ANCHOR]
"""The anchors show a lost or shifted sentence."""
TEXT = "\n".join(LINES)
FORMS = {
    "as on Unix": f"{TEXT}\n",
    "as on Windows": TEXT.replace("\n", "\r\n") + "\r\n",
    "without a last end": TEXT,
    "with a byte order mark": f"\ufeff{TEXT}\n",
}
UNIX = FORMS["as on Unix"].encode()
PATH = (
    'with space it\'s a "quote" $HOME $(touch executed) `touch executed` -dash --help äöü 漢字 e\u0301 '
    "a;b & c | d > e < f [a] {b} *? %s %(message)s {0} back\\slash\\#null~"
)
"""Name of a directory."""


class Place(NamedTuple):
    """A directory for one test, the model, and ``fairseq-deep`` in this process, with a standard input."""

    here: Path
    made: Made
    deep: Callable[..., Ended]

    def write(self, name: str, content: bytes) -> Path:
        (self.here / name).write_bytes(content)
        return self.here / name

    def write_pair(self, content: bytes) -> None:
        for language in ("de", "en"):
            self.write(f"text.{language}", content)


@pytest.fixture
def place(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deep: Command) -> Place:
    def with_input(*words: object, given: bytes = b"") -> Ended:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        return deep(*words)

    return Place(tmp_path, made, with_input)


# --- the commands: from bytes to what has become of each sentence -----------------------------------------------------

Read = Callable[[Place, bytes], tuple[Ended, Callable[[], list[str]]]]


def translated(place: Place, text: bytes) -> tuple[Ended, Callable[[], list[str]]]:
    ended = place.deep("translate", place.made.package, place.write("text", text), "--beam", "1")
    return ended, lambda: ended.output.removesuffix("\n").split("\n")


def interactively(place: Place, text: bytes, *words: str) -> tuple[Ended, Callable[[], list[str]]]:
    flags = ["--path", place.made.checkpoint, "-s", "de", "-t", "en", "--cpu", "--beam", "1", "--max-len-b", "5"]
    flags += ["--buffer-size", "50", "--batch-size", "50"]
    ended = place.deep("interactive", place.made.data / "data-bin", *flags, *words, given=text)
    return ended, lambda: in_order(hypotheses(ended))


def hypotheses(ended: Ended) -> list[tuple[int, str]]:
    """Number and translation of each sentence, as fairseq's commands print them."""
    printed = re.findall(r"(?m)^H-(\d+)\t[^\t\n]*\t(.*)$", ended.output)
    return [(int(number), translation) for number, translation in printed]


def in_order(found: list[tuple[int, str]]) -> list[str]:
    assert [number for number, _ in found] == list(range(len(found)))
    return [translation for _, translation in found]


def binarised(directory: Path, name: str = "train") -> list[str]:
    """The sentences of a binarised source side."""
    dictionary = Dictionary.load(str(directory / "dict.de.txt"))
    found = data_utils.load_indexed_dataset(str(directory / f"{name}.de-en.de"))
    return [" ".join(dictionary[number] for number in sentence[:-1]) for sentence in found]


def preprocessed(place: Place, text: bytes, workers: str = "1") -> tuple[Ended, Callable[[], list[str]]]:
    place.write_pair(text)
    words = ["-s", "de", "-t", "en", "--trainpref", place.here / "text", "--destdir", place.here / "bin"]
    return place.deep("preprocess", *words, "--workers", workers), lambda: binarised(place.here / "bin")


def generated(place: Place, text: bytes) -> tuple[Ended, Callable[[], list[str]]]:
    place.write_pair(text)
    data = place.made.data / "data-bin"
    words = ["-s", "de", "-t", "en", "--testpref", place.here / "text", "--destdir", place.here / "bin"]
    ended = place.deep("preprocess", *words, "--srcdict", data / "dict.de.txt", "--tgtdict", data / "dict.en.txt")
    if ended.code == 0:
        flags = ["--path", place.made.checkpoint, "--cpu", "--beam", "1", "--max-len-b", "5", "--max-tokens", "4000"]
        ended = place.deep("generate", place.here / "bin", *flags)
    return ended, lambda: in_order(sorted(hypotheses(ended)))


def prepared(place: Place, text: bytes, *words: str) -> tuple[Ended, Callable[[], list[str]]]:
    place.write_pair(text)
    raw, made = place.made.data.parent / "raw", place.here / "made"
    sets = ["--train", raw / "train", "--valid", raw / "valid", "--test", f"test={place.here / 'text'}"]
    words = words or ("--size", "60")
    ended = place.deep("prepare", made, *sets, "--workers", "1", *words)

    def read() -> list[str]:
        sentences = binarised(made / "data-bin", "test")
        for path in [made / "raw/test.de", made / "text/test.de", made / "text/test.tok.de"]:
            assert path.read_bytes().count(b"\n") + (not path.read_bytes().endswith(b"\n")) == len(sentences)
        return sentences

    return ended, read


def scored(place: Place, text: bytes) -> tuple[Ended, Callable[[], list[str]]]:
    result = place.here / "score.json"
    words = ["--metrics", "sacrebleu,chrf", "--output", result]
    # The second is read in the same way, so a translation that is shifted by a line would not get 100.
    reference = place.write("reference", UNIX)
    ended = place.deep("score", place.write("text", text), reference, *words)

    def read() -> list[str]:
        found = json.loads(result.read_text(encoding="utf-8"))
        assert [metric["value"] for metric in found["systems"][0]["metrics"]] == pytest.approx([100.0, 100.0])
        return [ANCHOR] * found["sentences"]

    return ended, read


COMMANDS: dict[str, Read] = {
    "translate": translated,
    "interactive": interactively,
    "preprocess": preprocessed,
    "generate": generated,
    "prepare": prepared,
    "score": scored,
}
BY_FAIRSEQ = ("preprocess", "generate")
"""Text that fairseq itself reads: it would take a mark for a part of a word, and a carriage return for the end."""


# --- what is promised -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("command", COMMANDS)
def test_each_sentence_in_gives_one_out_in_order(command: str, form: str, place: Place) -> None:
    ended, read = COMMANDS[command](place, FORMS[form].encode())
    if command in BY_FAIRSEQ and form == "with a byte order mark":
        assert ended.code == 2
        assert ended.error.startswith(f"error: {place.here / 'text.de'}: line 1: begins with a byte order mark")
        return
    assert ended.code == 0, ended.errors
    found = read()
    assert len(found) == len(LINES)
    assert len(set(found[::2])) == 1
    if command in ("preprocess", "prepare"):
        assert found[0].replace("@@ ", "").lower().replace(" ", "") == ANCHOR.lower().replace(" ", "")


def test_preprocessing_changes_nothing_but_white_space(place: Place) -> None:
    ended, read = preprocessed(place, UNIX, workers="2")
    assert ended.code == 0
    assert read() == [" ".join(line.split()) for line in LINES]


@pytest.mark.parametrize("words", ["--tokeniser none --given-tokeniser none --subwords none", "--normalise all"])
def test_every_preparation_keeps_every_test_sentence(words: str, place: Place) -> None:
    ended, read = prepared(place, UNIX, *words.split())
    assert ended.code == 0, ended.errors
    sentences = read()
    assert len(sentences) == len(LINES)
    assert len(set(sentences[::2])) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_text_is_named_by_file_and_line(command: str, place: Place) -> None:
    ended, _ = COMMANDS[command](place, "eins\nzwei\nfünf\n".encode("latin-1"))
    file = "text.de" if command in (*BY_FAIRSEQ, "prepare") else "text"
    name = "standard input" if command == "interactive" else place.here / file
    assert (ended.code, ended.error) == (2, f"error: {name}: line 3: not UTF-8 (byte 0xfc)")


def test_unequal_sides_are_refused_by_every_command_that_reads_two(place: Place) -> None:
    de, en = place.write("text.de", b"eins\nzwei\n"), place.write("text.en", b"1\n2\n3\n")
    sides = ["-s", "de", "-t", "en", "--trainpref", place.here / "text", "--destdir", place.here / "bin"]
    sets = ["--train", place.here / "text", "--valid", place.made.data.parent / "raw" / "valid"]
    for words in (["preprocess", *sides], ["prepare", place.here / "made", *sets], ["score", de, en]):
        ended = place.deep(*words)
        assert ended.code == 2
        assert re.search(r"has 2 lines.* 3( lines)?\b", ended.error), ended.error


@pytest.mark.slow
@pytest.mark.parametrize("command", ["translate", "preprocess", "prepare"])
def test_a_line_of_100_000_words_and_many_empty_ones(command: str, place: Place) -> None:
    words, empty = 100_000, 10_000
    text = f"{ANCHOR}\n{'eins ' * words}\n".encode() + b"\n" * empty + f"{ANCHOR}\n".encode()
    ended, read = COMMANDS[command](place, text)
    assert ended.code == 0, ended.errors
    first, long, *others, last = read()
    assert len(others) == empty
    assert first == last
    assert not any(others)
    if command == "preprocess":
        assert long == " ".join(["eins"] * words)


def test_a_closed_stream_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert translate.main(["nowhere"]) == EXIT_CODE
    assert capsys.readouterr().err == "error: standard input or standard output is closed\n"


# --- paths ------------------------------------------------------------------------------------------------------------

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
    place = tmp_path / PATH
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
