"""docs/choosing.md has a row for each method, and each of its cells says where it is from."""

import re

import pytest

from fairseq_plugins.core.method import METHODS
from tests.docs.test_generated import ROOT, generate

TOLD = [line.split("\t") for line in (ROOT / "docs/choosing.tsv").read_text(encoding="utf-8").splitlines()]


def test_each_method_has_a_row_in_the_file() -> None:
    names = [row[0] for row in TOLD[1:]]
    odd = sorted(set(METHODS) ^ set(names))
    assert not odd, f"docs/choosing.tsv has one row for each method; write or remove those of {odd}"
    assert names == list(METHODS), "the rows of docs/choosing.tsv have the order of the registry"
    short = [row[0] for row in TOLD if len(row) != len(TOLD[0])]
    assert not short, f"docs/choosing.tsv: a row has {len(TOLD[0])} cells, some empty, and tabs between; not {short}"
    assert generate.measured(generate.STEPS)["admin"] == "0.98 (0.95 to 1.01)"


def test_a_description_is_one_line_of_the_readme_and_every_statement_has_its_source() -> None:
    for name, what, *statements in TOLD[1:]:
        assert 0 < len(what) <= 72, f"docs/choosing.tsv, {name}: 'what' has 1 to 72 characters, not {len(what)}"
        assert not what.endswith("."), f"docs/choosing.tsv, {name}: 'what' ends without a full stop"
        bare = [statement for statement in statements if statement and not re.search(r"\([^()]+\)$", statement)]
        assert not bare, f"docs/choosing.tsv, {name}: a statement ends with its source in brackets, not {bare}"


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
