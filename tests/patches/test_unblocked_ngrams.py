"""No n-gram comes twice in a translation, from either search."""

from __future__ import annotations

import inspect
from collections import Counter
from itertools import pairwise

import pytest
import torch
from fairseq.ngram_repeat_block import NGramRepeatBlock
from hypothesis import given
from hypothesis import strategies as st

from tests import models
from tests.search.searching import outspoken, search, words


def repeated(sentence: list[int]) -> list[tuple[int, int]]:
    """The bigrams that come more than once."""
    return [bigram for bigram, count in Counter(pairwise(sentence)).items() if count > 1]


def translations(kind: str) -> list[list[int]]:
    lengths = {"min_len": 12, "max_len_a": 0, "max_len_b": 14}
    found = search([outspoken()], models.batch(), search=kind, no_repeat_ngram_size=2, **lengths)
    return [words(ranked)[0] for ranked in found]


@pytest.mark.parametrize("kind", ["lean", "fairseq"])
def test_no_bigram_twice(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(map(repeated, translations(kind)))
    stock = inspect.unwrap(NGramRepeatBlock._no_repeat_ngram)
    monkeypatch.setattr(NGramRepeatBlock, "_no_repeat_ngram", stock)
    assert any(map(repeated, translations(kind))), "stock blocks them by itself"


@given(st.lists(st.integers(4, 6), min_size=1, max_size=9), st.integers(1, 4))
def test_the_words_that_would_repeat_are_banned(said: list[int], size: int) -> None:
    step, room = len(said), 12
    tokens = torch.full((1, room), 1)
    tokens[0, : step + 1] = torch.tensor([2, *said])
    scores = NGramRepeatBlock(size)(tokens, torch.zeros(1, 8), bsz=1, beam_size=1, step=step)
    banned = {word for word in range(8) if scores[0, word] == -torch.inf}
    before = {tuple(said[start : start + size]) for start in range(len(said) - size + 1)}
    assert banned == {word for word in range(8) if tuple([*said[len(said) - size + 1 :], word]) in before}
