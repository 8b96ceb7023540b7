"""The comparison with other toolkits runs, here with what this environment has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import processes

RUN = Path(__file__).resolve().parents[2] / "benchmarks" / "peers" / "run.py"
TINY = ["--layers", "1", "--width", "16", "--vocabulary", "50", "--sentences", "2", "--length", "5", "--rounds", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("work", ["train", "search"])
def test_toolkits_take_turns_and_the_table_compares_them_with_the_first(work: str) -> None:
    done = processes.python(RUN, *TINY, "--toolkits", "stock,admin", "--work", work)
    assert done.code == 0, done.errors
    title, _, *rows = done.output.splitlines()
    assert title.startswith(f"{work}, 1-1 layers, width 16, vocabulary 50, 2 x 5 tokens, 2 rounds")
    assert rows[2].startswith("| stock | 1.00 (1.00 to 1.00) | ")
    assert re.fullmatch(r"\| admin \| [\d.]+ \([\d.]+ to [\d.]+\) \| [\d.]+ \|", rows[3])


@pytest.mark.slow
def test_a_toolkit_that_is_not_installed_ends_the_comparison() -> None:
    done = processes.python(RUN, *TINY, "--toolkits", "eole")
    assert done.code == 1
    assert done.errors.splitlines()[-1] == "error: eole ended with exit code 1"
    assert "ModuleNotFoundError" in done.errors
