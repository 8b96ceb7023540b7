"""The GNMT form: equation 14 in numbers, the score of every hypothesis, and what wins by it."""

from typing import Any

import pytest
import torch

from fairseq_plugins.search.length_penalty import gnmt_length_penalty
from tests import models
from tests.search.searching import gnmt, log_prob, outspoken, scores, search, stock_search, words
from tests.search.test_lean import SETTINGS

FORM: dict[str, Any] = {"lenpen_form": "gnmt"}
END = models.dictionary().eos()


def test_equation_14() -> None:
    for length, alpha, value in (
        (1, 0.0, 1.0),
        (1, 0.6, 1.0),  # (5 + 1) / 6 is 1
        (50, 0.0, 1.0),
        (7, 1.0, 2.0),  # 12 / 6
        (19, 0.5, 2.0),  # the root of 24 / 6
        (43, 2 / 3, 4.0),  # 8 ** (2 / 3)
        (25, 0.6, 2.6265278),  # 5 ** 0.6
        (13, 0.2, 1.2457309),  # 3 ** 0.2
    ):
        assert gnmt_length_penalty(length, alpha) == pytest.approx(value, rel=1e-7)


COMMON = ("beam", "greedy", "wide", "no bigram twice", "temperature", "unknown words", "short", "diverse", "siblings")
SEARCHES: dict[str, dict[str, Any]] = {
    **{name: SETTINGS[name] for name in COMMON},
    "alignment": {"print_alignment": "hard"},
    "sampling": {"sampling": True},
    "sampling from few": {"sampling": True, "sampling_topk": 5},
    "prefix": {"prefix": torch.tensor([[7, 8], [9, 1], [7, 7], [4, 5]])},  # the second is one word long
}


def assert_scored_by_equation_14(found: list[list[dict[str, Any]]], alpha: float) -> None:
    for ranked in found:
        assert ranked
        for one in ranked:
            assert one["tokens"][-1] == END
            expected = log_prob(one) / gnmt(len(one["tokens"]), alpha)
            assert float(one["score"]) == pytest.approx(expected, rel=1e-5)
        assert scores(ranked) == sorted(scores(ranked), reverse=True)


@pytest.mark.parametrize("name", SEARCHES)
def test_every_kind_of_search_is_fairseq_s_with_other_scores(name: str) -> None:
    """The same hypotheses with the same positional scores, put into another order; without strength in the same."""
    members, data, values = [outspoken()], models.batch(), SEARCHES[name]
    results = search(members, data, lenpen=0.6, **FORM, **values)
    assert_scored_by_equation_14(results, 0.6)
    if name == "prefix":
        assert all(hypothesis["tokens"][:2].tolist() == [7, 8] for hypothesis in results[0])
        assert all(hypothesis["tokens"][0] == 9 for hypothesis in results[1])
    if "sampling" in name or name == "prefix":
        return
    ours = search(members, data, search="fairseq", lenpen=0.6, **FORM, **values)
    for mine, theirs in zip(ours, stock_search(members, data, **values), strict=True):
        assert positional(mine) == positional(theirs)
    plain = search(members, data, search="fairseq", lenpen=0, **FORM, **values)
    for settings_of_stock in ({"lenpen": 0}, {"unnormalized": True}):
        stock = stock_search(members, data, **settings_of_stock, **values)
        for mine, theirs in zip(plain, stock, strict=True):
            assert words(mine) == words(theirs)
            assert scores(mine) == scores(theirs)


def positional(hypotheses: list[dict[str, Any]]) -> list[Any]:
    """Tokens and their scores in an order of their own; diverse groups may hold the same tokens twice."""
    return sorted((one["tokens"].tolist(), one["positional_scores"].tolist()) for one in hypotheses)
