"""Tables by hand, and JSON that every reader takes."""

from __future__ import annotations

import json

import pytest

from fairseq_plugins.tables import markdown_table, number, strict_json, tabulated


def test_text_is_aligned_on_both_sides():
    assert tabulated([("method", "BLEU"), ("admin", "9.5")]) == "method      BLEU\n--------  ------\nadmin        9.5"


def test_markdown_escapes_what_it_would_read_as_its_own():
    assert markdown_table([("a", "b"), ("1 *", "x|y")]) == "| a | b |\n| --- | ---: |\n| 1 \\* | x\\|y |"


def test_number():
    assert [number(value, ",.0f") for value in (None, 12345.6, float("nan"))] == ["-", "12,346", "nan"]


def test_json_has_no_number_that_is_none():
    text = strict_json({"a": [float("nan"), 1.5], "b": (float("inf"),), "c": None})
    assert json.loads(text, parse_constant=pytest.fail) == {"a": [None, 1.5], "b": [None], "c": None}
