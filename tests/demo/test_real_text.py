"""The job's text stages on real captions: every sentence is kept, and what is tokenised can be put together again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fairseq_plugins.demo import text
from fairseq_plugins.demo.decoding import sacrebleu_score

PREFIXES = {"train": "val", "valid": "test_2016_flickr", "test": "test_2018_flickr"}
SENTENCES = {"train": 1014, "valid": 1000, "test": 1071}


@pytest.fixture(scope="module")
def captions(real_corpus: Callable[[str], Path]) -> text.Corpus:
    return text.read_corpus(real_corpus("multi30k"), "de", "en", PREFIXES)


def test_every_caption_is_read(captions: text.Corpus) -> None:
    counts = {split: len(sides["en"]) for split, sides in captions.sentences.items()}
    assert counts == SENTENCES


def test_subwords_put_together_again_score_as_the_text_itself(captions: text.Corpus, tmp_path: Path) -> None:
    text.write_subwords(captions, text.TextSettings(bpe_operations=500, max_length=100), tmp_path, lambda line: None)
    lines = (tmp_path / "test.en").read_text(encoding="utf-8").splitlines()
    assert len(lines) == SENTENCES["test"]
    tokeniser = text.Tokeniser("en")
    restored = [tokeniser.join(line.replace("@@ ", "")) for line in lines]
    assert sacrebleu_score(restored, captions.sentences["test"]["en"]).bleu > 99.0
