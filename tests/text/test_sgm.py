"""Test sets out of WMT's SGML, against sacreBLEU's own reading of it and the published plain text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.dataset import DATASETS
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
from sacrebleu.tokenizers.tokenizer_intl import TokenizerV14International

from fairseq_plugins.errors import UserError
from fairseq_plugins.text.sgm import extract
from tests.scripts.made_archives import sgm


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def as_sacrebleu(path: Path, output: Path) -> list[str]:
    """What ``sacrebleu --echo`` would print of an SGML file of WMT'14."""
    DATASETS["wmt14/full"]._convert_format(str(path), str(output))
    return output.read_text(encoding="utf-8").split("\n")[:-1]


def text_of(path: Path, like: Path | None = None) -> list[str]:
    extract(path, path.with_name("text"), like=like)
    return path.with_name("text").read_text(encoding="utf-8").split("\n")[:-1]


LINE = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=30).filter(
    lambda line: "seg" not in line.lower()
)


@given(st.lists(LINE, min_size=1, max_size=12))
def test_any_text_is_what_sacrebleu_reads(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    directory = tmp_path_factory.mktemp("sgm")
    path = written(directory / "x.sgm", sgm(lines, "ref"))
    ours, theirs = text_of(path), as_sacrebleu(path, directory / "theirs")
    assert [" ".join(line.split()) for line in ours] == theirs
    assert [line.strip() for line in lines] == ours
    for tokenise in (Tokenizer13a(), TokenizerV14International()):
        assert [tokenise(line) for line in ours] == [tokenise(line) for line in theirs]


def test_newstest_comes_out_as_it_went_in(tmp_path: Path, real_corpus: Callable[[str], Path]) -> None:
    """sacreBLEU's own reading loses double spaces, so it cannot make the published bytes."""
    lost = 0
    for published in sorted(real_corpus("wmt_news").glob("newstest20*.*")):
        plain = published.read_text(encoding="utf-8").split("\n")[:-1]
        path = written(tmp_path / "x.sgm", sgm(plain, "src", per_document=20))
        assert text_of(path) == plain, published.name
        theirs = as_sacrebleu(path, tmp_path / "theirs")
        assert theirs == [" ".join(line.split()) for line in plain], published.name
        lost += theirs != plain
    assert lost > 0


def test_what_stands_around_a_segment_does_not_matter(tmp_path: Path) -> None:
    text = '<DOC docid="a">\r\n<hl>\r\n<seg id="1"> A &amp; B  C </seg>\r\n</hl>\r\n <p><seg id=2>D</seg></p>\r\n</DOC>'
    path = written(tmp_path / "x.sgm", text.encode())
    assert text_of(path) == ["A &amp; B  C", "D"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"<p>\n</p>\n", "contains no <seg>"),
        (b'<seg id="1">A</seg>\n<seg id="2">B\n</seg>\n', "line 2: not one whole <seg>...</seg>"),
        (b'<seg id="1">A</seg> <seg id="2">B</seg>\n', "line 1: not one whole <seg>...</seg>"),
        (b'<seg id="1">\xe4</seg>\n', "line 1: not UTF-8"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = written(tmp_path / "x.sgm", content)
    with pytest.raises(UserError) as raised:
        text_of(path)
    assert str(raised.value).startswith(f"{path}: {said}")


def test_two_files_of_different_test_sets_are_refused(tmp_path: Path) -> None:
    own = written(tmp_path / "own.sgm", sgm(["A", "B", "C"], "src", per_document=2))
    assert text_of(own, written(tmp_path / "same.sgm", sgm(["X", "Y", "Z"], "ref", per_document=2))) == ["A", "B", "C"]
    short = written(tmp_path / "short.sgm", sgm(["X", "Y"], "ref", per_document=2))
    with pytest.raises(UserError, match="own.sgm: has 3 segments, but .*short.sgm has 2"):
        text_of(own, short)
    other = written(tmp_path / "other.sgm", sgm(["X", "Y", "Z"], "ref", per_document=3))
    with pytest.raises(UserError, match="own.sgm: segment 3 has the number 1, but 3 in .*other.sgm"):
        text_of(own, other)
