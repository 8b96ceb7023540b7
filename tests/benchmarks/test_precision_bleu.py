"""The rows of the table of BLEU by precision: which are used again, and how they are printed; no model is trained."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.benchmarks.test_run_all import script

SETTINGS = {"data": "DATA", "updates": "400"}
ROW: dict[str, Any] = {
    "method": "post_ln",
    "bleu": {"float32": 20.0, "bf16": 20.125, "int8": 19.5},
    "same": {"float32": 1.0, "bf16": 0.875, "int8": 0.5},
    "settings": SETTINGS,
}


@pytest.fixture
def precision_bleu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("precision_bleu", monkeypatch)


def test_only_rows_with_the_same_settings_are_used_again(precision_bleu: ModuleType, tmp_path: Path) -> None:
    others = [{**ROW, "settings": {**SETTINGS, "updates": "600"}}, {"method": "post_ln", "bleu": {}}]
    written = tmp_path / "rows.jsonl"
    assert precision_bleu.rows_of(written, SETTINGS) == []
    written.write_text("".join(json.dumps(row) + "\n" for row in (others[0], ROW, others[1])))
    assert precision_bleu.rows_of(written, SETTINGS) == [ROW]


def test_a_row_has_differences_to_float32_and_the_share_of_equal_sentences(precision_bleu: ModuleType) -> None:
    assert precision_bleu.report([ROW]).splitlines() == [
        "| method | float32 | bf16 (same sentences) | int8 (same sentences) |",
        "|---|---:|---:|---:|",
        "| `post_ln` | 20.00 | +0.12 (88%) | -0.50 (50%) |",
    ]
