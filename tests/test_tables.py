"""Tables by hand."""

from __future__ import annotations

from fairseq_plugins.tables import markdown_table, number, tabulated


def test_text_is_aligned_on_both_sides():
    assert tabulated([("method", "BLEU"), ("admin", "9.5")]) == "method      BLEU\n--------  ------\nadmin        9.5"


def test_markdown_escapes_what_it_would_read_as_its_own():
    assert markdown_table([("a", "b"), ("1 *", "x|y")]) == "| a | b |\n| --- | ---: |\n| 1 \\* | x\\|y |"


def test_number():
    assert [number(value, ",.0f") for value in (None, 12345.6, float("nan"))] == ["-", "12,346", "nan"]
