"""docs/choosing.md has a row for each method, and each of its cells says where it is from."""

from __future__ import annotations

import re

import pytest

from fairseq_plugins.core.method import METHODS
from tests.docs.test_generated import ROOT, generate

TOLD = [line.split("\t") for line in (ROOT / "docs/choosing.tsv").read_text(encoding="utf-8").splitlines()]


def test_each_method_has_a_row_in_the_file_and_in_the_measured_tables() -> None:
    assert [row[0] for row in TOLD[1:]] == list(METHODS)
    assert all(len(row) == len(TOLD[0]) for row in TOLD)
    for measurements in (generate.STEPS, generate.DECODING):
        assert generate.measured(measurements).keys() >= METHODS.keys()
    assert generate.measured(generate.STEPS)["admin"] == "0.98 (0.95 to 1.01)"


def test_a_description_is_one_line_of_the_readme_and_every_statement_has_its_source() -> None:
    for name, what, *statements in TOLD[1:]:
        assert 0 < len(what) <= 72, name
        assert not what.endswith(".")
        assert all(re.search(r"\([^()]+\)$", statement) for statement in statements if statement), name


DEPTHS = {
    "post_ln": [
        "6-6 (Admin Table 2; DS-Init Table 3; B2T Table 1)",
        "fails at 12-12 (Admin Table 2)",
        "12 of a language model (ReZero Table 2)",
        "fails at 16 of a language model (B2T Table 4)",
    ],
    "admin": ["60-12 (Admin Table 2)"],
    "hybrid_ln": ["fails at 18-18 (Admin Table 1)"],
    "deepnet": ["18-18 (B2T Table 1)"],
    "keel": [],
}


def test_depths_of_the_papers() -> None:
    assert {name: generate.depths_of_papers(METHODS[name]) for name in DEPTHS} == DEPTHS


def test_what_folds_is_what_the_page_of_methods_says() -> None:
    pytest.importorskip("ctranslate2")
    found = {name: generate.folds_and_exports(method) for name, method in METHODS.items()}
    assert {name for name, (folds, _) in found.items() if folds} == {
        name for name, method in METHODS.items() if not generate.no_fold_reasons(method)
    }
    assert found["rezero"] == (False, True)
    assert found["b2t"] == (False, False)
    assert found["mix_ln"] == (False, False), "with layers of both kinds"
