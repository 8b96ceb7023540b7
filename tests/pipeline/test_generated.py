"""From the output of fairseq-generate to translations: nothing lost, nothing reordered."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.errors import UserError
from fairseq_plugins.pipeline.generated import hypotheses_in_order, references_in_order


def generated(index: int, text: str) -> list[str]:
    return [
        f"S-{index}\tein Haus\n",
        f"T-{index}\ta house\n",
        f"H-{index}\t-0.5\tnot this\n",
        f"D-{index}\t-0.5\t{text}\n",
        f"P-{index}\t-0.5 -0.5\n",
    ]


@given(st.lists(st.text(st.characters(exclude_characters="\t\n\r", codec="utf-8")), min_size=1, max_size=30))
def test_translations_come_back_in_the_order_of_the_test_set(texts):
    order = list(range(len(texts)))
    random.Random(len(texts)).shuffle(order)
    lines = ["2026 | INFO | fairseq_cli.generate | D-ictionary\n"]
    for index in order:
        lines += generated(index, texts[index])
    assert hypotheses_in_order(lines, len(texts)) == texts
    assert references_in_order(lines, len(texts)) == ["a house"] * len(texts)


def test_an_empty_translation_is_kept():
    assert hypotheses_in_order([*generated(1, ""), *generated(0, "a")], 2) == ["a", ""]


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([0, 2], "2 translations for 3 test sentences; the first missing is 1"),
        ([0, 1, 2, 3], "4 translations for 3 test sentences"),
        ([0, 1, 1, 2], "sentence 1 was translated twice"),
        ([], "0 translations for 3 test sentences; the first missing is 0"),
    ],
)
def test_lost_and_surplus_translations_are_refused(indices, message):
    with pytest.raises(UserError, match=message):
        hypotheses_in_order([line for index in indices for line in generated(index, "x")], 3)
