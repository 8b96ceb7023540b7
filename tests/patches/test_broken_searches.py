"""No n-gram comes twice in a translation, from either search, and a diverse search works with any data set."""

from collections import Counter
from itertools import pairwise

import pytest
import torch
from fairseq.ngram_repeat_block import NGramRepeatBlock
from hypothesis import given
from hypothesis import strategies as st

from tests import models
from tests.search import searching
from tests.search.searching import outspoken, scores, search, words


def repeated(sentence: list[int]) -> list[tuple[int, int]]:
    return [bigram for bigram, count in Counter(pairwise(sentence)).items() if count > 1]


def translations(kind: str) -> list[list[int]]:
    lengths = {"min_len": 12, "max_len_a": 0, "max_len_b": 14}
    found = search([outspoken()], models.batch(), search=kind, no_repeat_ngram_size=2, **lengths)
    return [words(ranked)[0] for ranked in found]


@pytest.mark.parametrize("kind", ["lean", "fairseq"])
def test_no_bigram_twice(kind: str) -> None:
    assert not any(map(repeated, translations(kind)))


@given(st.lists(st.integers(4, 6), min_size=1, max_size=9), st.integers(1, 4))
def test_the_words_that_would_repeat_are_banned(said: list[int], size: int) -> None:
    step, room = len(said), 12
    tokens = torch.full((1, room), 1)
    tokens[0, : step + 1] = torch.tensor([2, *said])
    scores = NGramRepeatBlock(size)(tokens, torch.zeros(1, 8), bsz=1, beam_size=1, step=step)
    banned = {word for word in range(8) if scores[0, word] == -torch.inf}
    before = {tuple(said[start : start + size]) for start in range(len(said) - size + 1)}
    assert banned == {word for word in range(8) if tuple([*said[len(said) - size + 1 :], word]) in before}


def test_the_numbers_of_sentences_change_nothing() -> None:
    ensemble, sample = [outspoken()], searching.sample_of(models.batch())
    found = []
    for numbers in (torch.arange(4), torch.tensor([7, 90, 8, 2])):
        generator = models.task().build_generator(ensemble, searching.settings(diverse_beam_groups=3))
        ranked = models.task().inference_step(generator, ensemble, {**sample, "id": numbers})
        found.append([(words(one), scores(one)) for one in ranked])
    assert found[0] == found[1]
