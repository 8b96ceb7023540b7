"""Tables by hand."""

import csv
from pathlib import Path

from fairseq_plugins.tables import csv_table, markdown_table, tabulated


def test_columns_are_aligned_on_both_sides_and_what_markdown_reads_as_its_own_is_escaped():
    assert tabulated([("method", "BLEU"), ("admin", "9.5")]) == "method      BLEU\n--------  ------\nadmin        9.5"
    assert markdown_table([("a", "b"), ("1 *", "x|y")]) == "| a | b |\n| --- | ---: |\n| 1 \\* | x\\|y |"


def test_no_cell_is_a_command() -> None:
    assert markdown_table([("a",), ("<script>\n[x](y) \\<",)]).endswith("| \\<script> \\[x](y) \\\\\\< |")
    assert tabulated([("a",), ("\x1b[2J\u202e",)]).endswith("\\x1b[2J\\u202e")
    text = ["=1+1", "+1+cmd|x", "-x", "@x", "\tx", "\x1b", "-0.5", "+1e-3", "-inf", "a=b", "é, \n"]
    safe = ["'=1+1", "'+1+cmd|x", "'-x", "'@x", "'\tx", "\\x1b", *text[6:]]
    assert list(csv.reader(csv_table([text]).splitlines(keepends=True))) == [safe]
    assert csv_table([[0.1, -2, None, Path("-x")]]) == "0.1,-2,,'-x\n"
