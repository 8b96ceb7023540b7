"""The published IWSLT'14 files: the archive's XML gives the published tokens, the published merges the subwords."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fairseq_plugins.lines import read_lines, write_lines
from fairseq_plugins.text.markup import segments
from fairseq_plugins.text.moses import tokeniser
from fairseq_plugins.text.subwords import load_bpe
from tests.scripts.archives import TED_SETS

SENTENCES = 6750
LANGUAGES = pytest.mark.parametrize("language", ["de", "en"])


@pytest.fixture(scope="module")
def published(real_corpus: Callable[[str], Path]) -> Path:
    return real_corpus("iwslt14_deen")


def raw_sentences(published: Path, language: str) -> list[str]:
    files = [published / "orig_xml" / f"IWSLT14.{name}.de-en.{language}.xml" for name in TED_SETS]
    return [sentence.replace("’", "'") for path in files for sentence in segments(path)]


def written(path: Path, lines) -> bytes:
    write_lines(path, lines)
    return path.read_bytes()


@LANGUAGES
def test_tokens_of_the_test_set_are_the_published_bytes(published: Path, language: str, tmp_path: Path) -> None:
    """Moses' Perl made them."""
    raw = raw_sentences(published, language)
    assert len(raw) == SENTENCES
    tokens = written(tmp_path / "tokens", map(tokeniser(language, lower_case=True), raw))
    assert tokens == (published / f"test.tok.{language}").read_bytes()


@LANGUAGES
@pytest.mark.parametrize("split", ["valid", "test"])
def test_subwords_are_the_published_bytes(published: Path, language: str, split: str, tmp_path: Path) -> None:
    bpe = load_bpe(published / "code")
    subwords = map(bpe.process_line, read_lines(published / f"{split}.tok.{language}"))
    assert written(tmp_path / "subwords", subwords) == (published / f"{split}.{language}").read_bytes()
