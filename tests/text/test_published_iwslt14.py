"""The published IWSLT'14 files: the archive's XML gives the published tokens, the published merges the subwords."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fairseq_plugins.lines import read_lines
from fairseq_plugins.tools.text.markup import segments
from fairseq_plugins.tools.text.moses import tokeniser
from fairseq_plugins.tools.text.subwords import load_bpe
from tests.scripts.archives import TED_SETS
from tests.texts import write

LANGUAGES = pytest.mark.parametrize("language", ["de", "en"])
Corpus = Callable[[str], Path]


@LANGUAGES
def test_tokens_of_the_test_set_are_the_published_bytes(real_corpus: Corpus, language: str, tmp_path: Path) -> None:
    """Moses' Perl made them."""
    published = real_corpus("iwslt14_deen")
    files = [published / "orig_xml" / f"IWSLT14.{name}.de-en.{language}.xml" for name in TED_SETS]
    raw = [sentence.replace("’", "'") for path in files for sentence in segments(path)]
    assert len(raw) == 6750
    tokens = write(tmp_path / "tokens", map(tokeniser(language, lower_case=True), raw))
    assert tokens.read_bytes() == (published / f"test.tok.{language}").read_bytes()


@LANGUAGES
@pytest.mark.parametrize("split", ["valid", "test"])
def test_subwords_are_the_published_bytes(real_corpus: Corpus, language: str, split: str, tmp_path: Path) -> None:
    published = real_corpus("iwslt14_deen")
    bpe = load_bpe(published / "code")
    subwords = map(bpe.process_line, read_lines(published / f"{split}.tok.{language}"))
    assert write(tmp_path / "subwords", subwords).read_bytes() == (published / f"{split}.{language}").read_bytes()
