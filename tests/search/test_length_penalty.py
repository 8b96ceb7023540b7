"""The GNMT form: equation 14 in numbers, the score of every hypothesis, and what wins by it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from fairseq.models import BaseFairseqModel
from torch import Tensor

from fairseq_plugins.search.length_penalty import gnmt_length_penalty
from tests import models
from tests.search.searching import gnmt, log_probability, outspoken, scores, search, stock_search, words
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


COMMON = (
    "beam",
    "greedy",
    "wide",
    "no repeated bigram",
    "temperature",
    "unknown words",
    "short",
    "diverse",
    "siblings",
)
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
            expected = log_probability(one) / gnmt(len(one["tokens"]), alpha)
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


def test_each_hypothesis_keeps_its_own_alignment() -> None:
    data, members = models.batch(), [outspoken()]
    ours = search(members, data, beam=6, lenpen=2.0, print_alignment="hard", **FORM)
    stock = stock_search(members, data, beam=6, lenpen=0.0, print_alignment="hard")
    assert [words(ranked) for ranked in ours] != [words(ranked) for ranked in stock]
    for mine, theirs in zip(ours, stock, strict=True):
        alignment = {tuple(one["tokens"].tolist()): one["alignment"] for one in theirs}
        assert [one["alignment"] for one in mine] == [alignment[tuple(one["tokens"].tolist())] for one in mine]


# A vocabulary of two words and a beam that holds everything: beam search is exhaustive, and an oracle can list it all.

TWO_WORDS = (models.dictionary().index("w0"), models.dictionary().index("w1"))
LONGEST = 4
EVERYTHING = 2 + 4 + 8 + 16
"""Sentences of 1 to 4 words out of two; also more than the open hypotheses and ends of any step."""


def restricted(case: str) -> BaseFairseqModel:
    """A model of two words and the end mark; all other entries are impossible."""
    model = models.trained(case)
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(3)
    impossible = torch.full((len(models.dictionary()),), -math.inf)
    impossible[[*TWO_WORDS, END]] = 0.0
    forward = model.decoder.forward

    def forward_restricted(previous: Tensor, **options: Any) -> Any:
        logits, extra = forward(previous, **options)
        return logits + impossible, extra

    model.decoder.forward = forward_restricted
    return model


def listed(model: BaseFairseqModel, row: models.Batch) -> dict[tuple[int, ...], float]:
    """Log-probability of every sentence that there is, each from one whole forward pass."""
    result = {}
    for length in range(1, LONGEST + 1):
        for chosen in itertools.product(TWO_WORDS, repeat=length):
            tokens = torch.tensor([*chosen, END])
            previous = torch.tensor([[END, *chosen]])
            encoder_out = model.encoder(row.source, row.lengths)
            logits, _ = model.decoder.forward(previous, encoder_out=encoder_out)
            found = logits[0].double().log_softmax(-1).gather(1, tokens.unsqueeze(1))
            result[tuple(tokens.tolist())] = float(found.sum())
    return result


@pytest.mark.parametrize("case", ["post_ln", "admin", "rezero"])
def test_an_exhaustive_search_ranks_as_the_oracle(case: str) -> None:
    model, data = restricted(case), models.batch(sentences=2)
    with torch.no_grad():
        listings = [listed(model, data.rows(sentence, sentence + 1)) for sentence in range(2)]
    assert [len(listing) for listing in listings] == [EVERYTHING] * 2
    for alpha in (0.0, 0.6, 1.0, 3.0):
        for form, divide in (("gnmt", gnmt), ("fairseq", lambda length, power: length**power)):
            found = search([model], data, beam=EVERYTHING, max_len_b=LONGEST, lenpen=alpha, lenpen_form=form)
            for ranked, listing in zip(found, listings, strict=True):
                oracle = {tokens: total / divide(len(tokens), alpha) for tokens, total in listing.items()}
                expected = sorted(oracle, key=oracle.__getitem__, reverse=True)
                assert [tuple(each) for each in words(ranked)] == expected
                assert scores(ranked) == pytest.approx([oracle[tokens] for tokens in expected], abs=1e-4)
