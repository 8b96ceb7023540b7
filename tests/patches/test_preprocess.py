"""``fairseq-preprocess`` reads first, then writes whole data sets or nothing, with the bytes of stock fairseq."""

import inspect
import logging
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fairseq import options
from fairseq.data import Dictionary
from fairseq_cli import preprocess

from fairseq_plugins import sums
from fairseq_plugins.errors import UserError
from tests import toy
from tests.processes import full_disk_after
from tests.refusals import line_of, refused

PAIR = ("-s", "de", "-t", "en")
FILES: dict[str, bytes] = {
    "good.de": b"a b\nc\r\n\n",
    "good.en": b"x\ny z\nz\n",
    "empty.de": b"",
    "empty.en": b"",
    "short.de": b"a\nb\nc\n",
    "short.en": b"x\ny\n",
    "latin.de": b"a\n",
    "latin.en": "é".encode("latin-1") + b"\n",
    "blank.de": b"\n\n",
    "blank.en": b"x\ny\n",
    "mac.de": b"a\nb\rc\n",
    "mac.en": b"x\ny\n",
    "good.align": b"0-0 1-0\n0-1\n\n",
    "marked.de": b"\xef\xbb\xbfa\n",
    "marked.en": b"x\n",
    "dict": b"a 1\n",
    "twice": b"a 1\nb 1\na 1 #fairseq:overwrite\n",
}
LINES = {
    "-s de -t en --trainpref absent": "absent.de: no such file",
    "-s de -t en --trainpref empty": "empty.de: empty",
    "-s de -t en --trainpref good --validpref good,short": (
        "short.de: not parallel: short.de has 3 lines, short.en has 2 lines; line k must translate line k"
    ),
    "-s de -t en --trainpref good --testpref good,latin": "latin.en: line 1: not UTF-8 (byte 0xe9)",
    "-s de -t en --trainpref good --testpref blank": "blank.de: all lines are blank",
    "-s de -t en --trainpref mac": "mac.de: line 2: carriage return inside the line, where fairseq would split it; ",
    "-s de -t en --trainpref marked": "marked.de: line 1: begins with a byte order mark, a part of fairseq's first ",
    "-s de -t en --trainpref latin --dict-only": "latin.en: line 1: not UTF-8 (byte 0xe9)",
    "--only-source --trainpref latin.en": "latin.en: line 1: not UTF-8 (byte 0xe9)",
    "-s de --trainpref good": "--source-lang and --target-lang are required, or --only-source",
    "-s de -t en --testpref good --srcdict good.de": "--trainpref is required to make dictionaries from, or existing",
    "-s de -t en --trainpref good --workers 0": "--workers 0: must be at least 1",
    "-s de -t en --trainpref good --srcdict absent": "absent: no such file",
    "-s de -t en --trainpref good --srcdict twice": "twice: a word that ends in #fairseq:overwrite is there twice; rem",
    "-s de -t en --trainpref good --tgtdict empty.en": "empty.en: empty",
    "-s de -t en --trainpref good --tgtdict good.en": "good.en: line 1: 'x' is not a word and its count",
    "-s de -t en --joined-dictionary --srcdict dict --tgtdict dict": "cannot use both --srcdict and --tgtdict with",
}
"""Arguments of the command, and the beginning of its line."""


def binarise(*flags: Any) -> None:
    preprocess.main(options.get_preprocessing_parser().parse_args([str(flag) for flag in flags]))


def contents(directory: Path) -> dict[str, bytes]:
    """Every file but the log, which names the directory, and the checksums, which stock fairseq does not write."""
    without = ("preprocess.log", sums.FILE)
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name not in without}


@pytest.fixture
def here(here: Path) -> Path:
    for name, content in FILES.items():
        (here / name).write_bytes(content)
    return here


def test_one_line_before_anything_is_written(here: Path) -> None:
    for flags, line in LINES.items():
        assert str(line_of(binarise, *flags.split(), "--destdir", "x")).startswith(line), flags
        assert not (here / "x").exists()


def test_lines_that_end_as_on_windows_blank_lines_and_alignments_pass(here: Path) -> None:
    binarise(*PAIR, "--trainpref", "good", "--alignfile", "good.align", "--align-suffix", "align", "--destdir", "x")
    assert (here / "x/alignment.de-en.txt").read_text(encoding="utf-8") == "a x\nb x\nc z\n"
    # For a dictionary alone the sides need not be parallel.
    binarise(*PAIR, "--trainpref", "short", "--dict-only", "--destdir", "y")
    assert (here / "y/dict.de.txt").read_text(encoding="utf-8").startswith("a 1\nb 1\nc 1\n")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("text")
    toy.write_corpus(directory)
    (directory / "train.align").write_text("0-1 1-0\n" * toy.SIZES["train"], encoding="utf-8")
    return directory


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        ((*PAIR, "--trainpref", "train", "--validpref", "valid", "--testpref", "test,valid", "--workers", "2"), 18),
        ((*PAIR, "--trainpref", "train", "--joined-dictionary", "--dict-only", "--nwordssrc", "12"), 2),
        ((*PAIR, "--trainpref", "train", "--validpref", "valid", "--dataset-impl", "raw"), 6),
        ((*PAIR, "--trainpref", "train", "--alignfile", "train.align", "--align-suffix", "align"), 9),
        (("--only-source", "--trainpref", "train.de", "--testpref", "test.de", "--padding-factor", "1"), 5),
    ],
)
def test_every_byte_is_stocks(flags, count, text, tmp_path, monkeypatch):
    monkeypatch.chdir(text)
    binarise(*flags, "--destdir", tmp_path / "ours")
    monkeypatch.setattr(preprocess, "main", inspect.unwrap(preprocess.main))
    binarise(*flags, "--destdir", tmp_path / "stock")
    for handler in [handler for handler in preprocess.logger.handlers if isinstance(handler, logging.FileHandler)]:
        preprocess.logger.removeHandler(handler)
        handler.close()
    assert len(contents(tmp_path / "ours")) == count
    assert contents(tmp_path / "ours") == contents(tmp_path / "stock")
    logs = [(tmp_path / name / "preprocess.log").read_text(encoding="utf-8") for name in ("ours", "stock")]
    assert logs[0].replace("ours", "stock") == logs[1]


def test_a_second_test_set_joins_a_finished_directory(text: Path, tmp_path: Path) -> None:
    (tmp_path / "x/preprocess.partial").mkdir(parents=True)  # left by a killed run, in nobody's way
    (tmp_path / "x/preprocess.partial/train.de-en.de.bin1").touch()
    binarise(*PAIR, "--trainpref", text / "train", "--destdir", tmp_path / "x")
    dictionaries = ("--srcdict", tmp_path / "x/dict.de.txt", "--tgtdict", tmp_path / "x/dict.en.txt")
    before = contents(tmp_path / "x")
    assert len(before) == 6
    binarise(*PAIR, "--testpref", text / "test", *dictionaries, "--destdir", tmp_path / "x")
    after = contents(tmp_path / "x")
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {f"test.de-en.{end}" for end in ("de.bin", "de.idx", "en.bin", "en.idx")}
    # Each of its files has its checksum, as sha256sum finds it.
    words = ["sha256sum", "-c", sums.FILE]
    checked = subprocess.run(words, cwd=tmp_path / "x", capture_output=True, text=True, check=True)
    assert checked.stdout == "".join(f"{name}: OK\n" for name in sorted(after))
    assert (tmp_path / "x/preprocess.log").read_text(encoding="utf-8").count("Wrote preprocessed data to") == 2


def test_a_finished_directory_and_a_dictionary_of_the_user_are_left_alone(text: Path, tmp_path: Path) -> None:
    flags = (*PAIR, "--trainpref", text / "train", "--destdir")
    binarise(*flags, tmp_path / "x", "--nwordstgt", 5)
    (tmp_path / "y").mkdir()
    (tmp_path / "y/dict.en.txt").write_text("mine 1\n", encoding="utf-8")
    (tmp_path / "file").touch()
    for name, refusal in (
        ("x", r"already holds dict\.de\.txt: use another --destdir, remove the directory, or"),
        ("y", r"already holds dict\.en\.txt: use another --destdir, remove the directory, or"),
        ("file", "file: Not a directory; nothing was written"),
    ):
        before = contents(tmp_path / name) if name != "file" else {}
        with pytest.raises(UserError, match=refusal):
            binarise(*flags, tmp_path / name)
        assert name == "file" or contents(tmp_path / name) == before


def test_a_stopped_run_leaves_nothing(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes when both dictionaries are written and both sides are binarised."""
    make_all = preprocess._make_all

    def interrupted(lang: str, vocab: Dictionary, args: Any) -> None:
        make_all(lang, vocab, args)
        if lang == "en":
            raise KeyboardInterrupt

    monkeypatch.setattr(preprocess, "_make_all", interrupted)
    handlers = list(preprocess.logger.handlers)
    with pytest.raises(KeyboardInterrupt):
        binarise(*PAIR, "--trainpref", text / "train", "--destdir", tmp_path / "new/x")
    assert not (tmp_path / "new/x").exists()
    assert (preprocess.logger.handlers, preprocess.logger.filters) == (handlers, [])


def test_a_full_disk_is_a_line_and_leaves_nothing(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with full_disk_after(1_000):
        line = refused(binarise, *PAIR, "--trainpref", text / "train", "--destdir", tmp_path / "x")
    assert line == f"--destdir {tmp_path / 'x'}: File too large; nothing was written"
    assert list(tmp_path.iterdir()) == []
