"""``fairseq-preprocess`` says what is wrong with a text before it writes anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairseq_plugins.process import users_mistake
from tests.patches.binarising import PAIR, binarise

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
    "good.short": b"0-0\n",
    "good.word": b"0-0\n0:1\n\n",
    "good.far": b"0-0\n0-1 0-2\n\n",
    "empty": b"",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which holds :data:`FILES`."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


TRAIN = (*PAIR, "--trainpref", "good")


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ((*PAIR, "--trainpref", "absent"), "absent.de: no such file"),
        ((*PAIR, "--trainpref", "empty"), "empty.de: empty"),
        (
            (*TRAIN, "--validpref", "good,short"),
            "short.de: not parallel: short.de has 3 lines, short.en has 2 lines; line k must translate line k",
        ),
        ((*TRAIN, "--testpref", "good,latin"), "latin.en: line 1: not UTF-8 (byte 0xe9)"),
        ((*TRAIN, "--testpref", "blank"), "blank.de: all lines are blank"),
        (
            (*PAIR, "--trainpref", "mac"),
            "mac.de: line 2: carriage return inside the line, where fairseq would split it; remove it, or replace "
            "it with a space",
        ),
        ((*PAIR, "--trainpref", "latin", "--dict-only"), "latin.en: line 1: not UTF-8 (byte 0xe9)"),
        (("--only-source", "--trainpref", "latin.en"), "latin.en: line 1: not UTF-8 (byte 0xe9)"),
        (
            ("-s", "de", "--trainpref", "good"),
            "--source-lang and --target-lang are required, or --only-source for text in one language",
        ),
        (
            (*PAIR, "--testpref", "good"),
            "--trainpref is required to make a dictionary from, or --srcdict with an existing one",
        ),
        (
            (*PAIR, "--testpref", "good", "--srcdict", "good.de"),
            "--trainpref is required to make a dictionary from, or --tgtdict with an existing one",
        ),
        ((*TRAIN, "--workers", "0"), "--workers 0: must be at least 1"),
        ((*TRAIN, "--srcdict", "absent"), "absent: no such file"),
        ((*TRAIN, "--tgtdict", "empty"), "empty: empty"),
        ((*TRAIN, "--tgtdict", "good.en"), "good.en: line 1: 'x' is not a word and its count"),
    ],
)
def test_one_line_before_anything_is_written(flags: tuple[str, ...], line: str, here: Path) -> None:
    (here / "d").write_text("a 1\n", encoding="utf-8")
    with pytest.raises(ValueError) as caught:  # noqa: PT011  (fairseq's own for a dictionary)
        binarise(*flags, "--destdir", "x")
    assert str(users_mistake(caught.value)) == line
    assert not (here / "x").exists()


def test_lines_that_end_as_on_windows_blank_lines_and_alignments_pass(here: Path) -> None:
    binarise(*TRAIN, "--alignfile", "good.align", "--align-suffix", "align", "--destdir", "x")
    assert (here / "x/alignment.de-en.txt").read_text(encoding="utf-8") == "a x\nb x\nc z\n"


def test_for_a_dictionary_alone_the_sides_need_not_be_parallel(here: Path) -> None:
    binarise(*PAIR, "--trainpref", "short", "--dict-only", "--destdir", "x")
    assert (here / "x/dict.de.txt").read_text(encoding="utf-8").startswith("a 1\nb 1\nc 1\n")
