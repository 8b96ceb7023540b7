"""``fairseq-preprocess`` writes whole data sets or nothing, and what it writes is what stock fairseq writes."""

from __future__ import annotations

import logging
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fairseq.data import Dictionary
from fairseq_cli import preprocess

from fairseq_plugins.errors import UserError
from tests import toy
from tests.patches.binarising import PAIR, binarise, binarise_as_stock, contents


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
        ((*PAIR, "--trainpref", "train", "--joined-dictionary", "--dataset-impl", "lazy"), 6),
        ((*PAIR, "--trainpref", "train", "--joined-dictionary", "--dict-only", "--nwordssrc", "12"), 2),
        ((*PAIR, "--trainpref", "train", "--validpref", "valid", "--dataset-impl", "raw"), 6),
        ((*PAIR, "--trainpref", "train", "--alignfile", "train.align", "--align-suffix", "align"), 9),
        (("--only-source", "--trainpref", "train.de", "--testpref", "test.de", "--padding-factor", "1"), 5),
    ],
)
def test_every_byte_is_stocks(
    flags: tuple[str, ...], count: int, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(text)
    binarise(*flags, "--destdir", tmp_path / "ours")
    binarise_as_stock(monkeypatch, *flags, "--destdir", tmp_path / "stock")
    assert len(contents(tmp_path / "ours")) == count
    assert contents(tmp_path / "ours") == contents(tmp_path / "stock")
    logs = [(tmp_path / name / "preprocess.log").read_text(encoding="utf-8") for name in ("ours", "stock")]
    assert logs[0].replace("ours", "stock") == logs[1]


def test_a_second_test_set_joins_a_finished_directory(text: Path, tmp_path: Path) -> None:
    binarise(*PAIR, "--trainpref", text / "train", "--destdir", tmp_path / "x")
    dictionaries = ("--srcdict", tmp_path / "x/dict.de.txt", "--tgtdict", tmp_path / "x/dict.en.txt")
    before = contents(tmp_path / "x")
    binarise(*PAIR, "--testpref", text / "test", *dictionaries, "--destdir", tmp_path / "x")
    after = contents(tmp_path / "x")
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {f"test.de-en.{end}" for end in ("de.bin", "de.idx", "en.bin", "en.idx")}
    assert (tmp_path / "x/preprocess.log").read_text(encoding="utf-8").count("Wrote preprocessed data to") == 2


def test_a_finished_directory_and_a_dictionary_of_the_user_are_left_alone(text: Path, tmp_path: Path) -> None:
    flags = (*PAIR, "--trainpref", text / "train", "--destdir")
    binarise(*flags, tmp_path / "x", "--nwordstgt", 5)
    (tmp_path / "y").mkdir()
    (tmp_path / "y/dict.en.txt").write_text("mine 1\n", encoding="utf-8")
    for name, language in (("x", "de"), ("y", "en")):
        before = contents(tmp_path / name)
        refusal = f"already holds dict.{language}.txt: use another --destdir, remove the directory, or"
        with pytest.raises(UserError, match=refusal):
            binarise(*flags, tmp_path / name)
        assert contents(tmp_path / name) == before


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


def test_what_a_killed_run_has_left_is_in_nobodys_way(text: Path, tmp_path: Path) -> None:
    (tmp_path / "x/preprocess.partial").mkdir(parents=True)
    (tmp_path / "x/preprocess.partial/train.de-en.de.bin1").touch()
    binarise(*PAIR, "--trainpref", text / "train", "--destdir", tmp_path / "x")
    assert len(contents(tmp_path / "x")) == 6


@pytest.fixture
def at_most_one_kb() -> Iterator[None]:
    """Files of this process end at 1,000 bytes, as on a disk that is full then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("at_most_one_kb")
def test_a_full_disk_is_one_line_and_leaves_nothing(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with pytest.raises(UserError) as caught:
        binarise(*PAIR, "--trainpref", text / "train", "--destdir", tmp_path / "x")
    assert caught.value.problems == (f"--destdir {tmp_path / 'x'}: File too large; nothing was written",)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_directory(text: Path, tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(UserError, match="x: Not a directory; nothing was written"):
        binarise(*PAIR, "--trainpref", text / "train", "--destdir", tmp_path / "x")
