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
    "marked.de": b"\xef\xbb\xbfa\n",
    "marked.en": b"x\n",
    "empty": b"",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which holds :data:`FILES`."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


NO_TEXT = "--trainpref is required to make dictionaries from, or existing ones (--srcdict, --tgtdict)"
LINES = {
    "-s de -t en --trainpref absent": "absent.de: no such file",
    "-s de -t en --trainpref empty": "empty.de: empty",
    "-s de -t en --trainpref good --validpref good,short": (
        "short.de: not parallel: short.de has 3 lines, short.en has 2 lines; line k must translate line k"
    ),
    "-s de -t en --trainpref good --testpref good,latin": "latin.en: line 1: not UTF-8 (byte 0xe9)",
    "-s de -t en --trainpref good --testpref blank": "blank.de: all lines are blank",
    "-s de -t en --trainpref mac": (
        "mac.de: line 2: carriage return inside the line, where fairseq would split it; remove it, or replace it "
        "with a space"
    ),
    "-s de -t en --trainpref marked": (
        "marked.de: line 1: begins with a byte order mark, a part of fairseq's first word; remove it"
    ),
    "-s de -t en --trainpref latin --dict-only": "latin.en: line 1: not UTF-8 (byte 0xe9)",
    "--only-source --trainpref latin.en": "latin.en: line 1: not UTF-8 (byte 0xe9)",
    "-s de --trainpref good": (
        "--source-lang and --target-lang are required, or --only-source for text in one language"
    ),
    "-s de -t en --testpref good": NO_TEXT,
    "-s de -t en --testpref good --srcdict good.de": NO_TEXT,
    "-s de -t en --trainpref good --workers 0": "--workers 0: must be at least 1",
    "-s de -t en --trainpref good --srcdict absent": "absent: no such file",
    "-s de -t en --trainpref good --tgtdict empty": "empty: empty",
    "-s de -t en --trainpref good --tgtdict good.en": "good.en: line 1: 'x' is not a word and its count",
    "-s de -t en --joined-dictionary --srcdict d --tgtdict d": "cannot use both --srcdict and --tgtdict with",
}


def test_one_line_before_anything_is_written(here: Path) -> None:
    (here / "d").write_text("a 1\n", encoding="utf-8")
    for flags, line in LINES.items():
        with pytest.raises((ValueError, AssertionError)) as caught:  # fairseq's own for dictionaries
            binarise(*flags.split(), "--destdir", "x")
        assert str(users_mistake(caught.value)).startswith(line), flags
        assert not (here / "x").exists()


def test_lines_that_end_as_on_windows_blank_lines_and_alignments_pass(here: Path) -> None:
    binarise(*PAIR, "--trainpref", "good", "--alignfile", "good.align", "--align-suffix", "align", "--destdir", "x")
    assert (here / "x/alignment.de-en.txt").read_text(encoding="utf-8") == "a x\nb x\nc z\n"


def test_for_a_dictionary_alone_the_sides_need_not_be_parallel(here: Path) -> None:
    binarise(*PAIR, "--trainpref", "short", "--dict-only", "--destdir", "x")
    assert (here / "x/dict.de.txt").read_text(encoding="utf-8").startswith("a 1\nb 1\nc 1\n")
