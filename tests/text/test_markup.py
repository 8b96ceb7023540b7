"""Sentences out of TED's and WMT's markup, against sacreBLEU's own reading of SGML and the published plain text."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.dataset import DATASETS

from fairseq_plugins.tools.text.markup import extract_ted, segments
from tests.refusals import refused
from tests.scripts.archives import sgm
from tests.texts import read, write, written

LINE = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=30).filter(
    lambda line: "seg" not in line.lower()
)


@given(st.lists(LINE, min_size=1, max_size=12))
def test_any_text_is_what_sacrebleu_reads(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    directory = tmp_path_factory.mktemp("sgm")
    path = written(directory / "x.sgm", sgm(lines, "ref"))
    ours = list(segments(path))
    # `sacrebleu --echo` would print this of WMT'14.
    DATASETS["wmt14/full"]._convert_format(str(path), str(directory / "theirs"))
    assert [" ".join(line.split()) for line in ours] == read(directory / "theirs")
    assert [line.strip() for line in lines] == ours


def test_what_stands_around_a_segment_does_not_matter(tmp_path: Path) -> None:
    text = '<DOC docid="a">\r\n<hl>\r\n<seg id="1"> A &amp; B  C </seg>\r\n</hl>\r\n <p><seg id=2>D</seg></p>\r\n</DOC>'
    assert list(segments(written(tmp_path / "x.sgm", text.encode()))) == ["A &amp; B  C", "D"]


def test_a_file_of_another_kind_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    for content, said in (
        (b"", "empty"),
        (b"<p>\n</p>\n", "contains no <seg>"),
        (b'<seg id="1">A</seg>\n<seg id="2">B\n</seg>\n', "line 2: not one whole <seg>...</seg>"),
        (b'<seg id="1">A</seg> <seg id="2">B</seg>\n', "line 1: not one whole <seg>...</seg>"),
        (b'<seg id="1">\xe4</seg>\n', "line 1: not UTF-8"),
    ):
        path = written(tmp_path / "x.sgm", content)
        assert refused(extract_ted, [path], tmp_path / "text", kind="xml").startswith(f"{path}: {said}")
        assert list(tmp_path.iterdir()) == [path]


def test_titles_and_descriptions_of_talks_are_sentences(tmp_path: Path) -> None:
    tags = tmp_path / "tags"
    head = ["<url>http://www.ted.com/x.html</url>", "<keywords>talks, arts</keywords>", "<talkid>1</talkid>"]
    more = ["<title>A B: Titel</title>", "<description>TED Talk Subtitles</description>", " Ein Satz & noch einer. "]
    write(tags, [*head, "<speaker>A B</speaker>", *more])
    extract_ted([tags], tmp_path / "out", kind="tags")
    kept = ["<speaker>A B</speaker>", "A B: Titel", "TED Talk Subtitles", " Ein Satz & noch einer. "]
    assert read(tmp_path / "out") == kept
    write(tags, head)
    assert f"{tags}: contains no sentence" in refused(extract_ted, [tags], tmp_path / "out", kind="tags")


def test_apostrophes_of_talks_become_straight(tmp_path: Path) -> None:
    xml = tmp_path / "xml"
    write(xml, ["<doc>", '<seg id="1"> Es geht’s gut. </seg>', "<title>x</title>", '<seg id="12">Ja. </seg> '])
    for straight, first in ((False, "Es geht’s gut."), (True, "Es geht's gut.")):
        extract_ted([xml, xml], tmp_path / "out", kind="xml", straight_apostrophes=straight)
        assert read(tmp_path / "out") == [first, "Ja.", first, "Ja."]
