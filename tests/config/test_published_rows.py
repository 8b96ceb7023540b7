"""The table of published results: what is in it."""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from dataclasses import fields
from statistics import fmean

import pytest

from fairseq_plugins.tools.pipeline.published import FILE, ROWS, WITHOUT_NUMBER, PublishedRow, rows_by_table, rows_of
from tests.config.published import CONFIGS, NAMES

PAPERS = ("Admin", "admin-torch", "DS-Init", "ReZero", "B2T")
SCORERS = {
    "BLEU": ("tokenised", "compound-split", "compound-split-t2t", "sacreBLEU"),
    "bits per byte": ("eval-lm",),
    "updates to 1.2 bits per byte": ("eval-lm",),
    "chrF": ("sacreBLEU",),
    "perplexity": ("eval-lm", "validate"),
    "negative log-likelihood": ("valid loss",),
    "lowest negative log-likelihood": ("valid loss",),
    "ROUGE-1 ROUGE-2 ROUGE-L": ("ROUGE",),
    "WER": ("WER",),
}
NUMBER = r"\d+(\.\d+)?"
WHOLE_OR_NOTHING = r"([1-9]\d*)?"
PATTERNS = {
    "table": r"\S.*",
    "row": r"\S.*",
    "config": r"[a-z0-9_]+/[a-z0-9_]+",
    "overrides": r"(\+?[a-z_]+\.[a-z_0-9]+=\S+( |$))*",
    "seeds": r"\d+( \d+)*",
    "tokens_per_update": WHOLE_OR_NOTHING,
    "gpus": WHOLE_OR_NOTHING,
    "gpu_days": rf"({NUMBER})?",
    "average": r"none|(last-epochs|last-updates|best)=[1-9]\d*",
    "test": r"\S+( \S+)*",
    "printed": rf"{'|'.join(WITHOUT_NUMBER)}|{NUMBER}(±{NUMBER})?|{NUMBER}( {NUMBER})+( mean {NUMBER})?",
    "run_here": r"\S.*",
}
"""What the cells of a column look like."""


def test_every_cell_is_what_its_column_says() -> None:
    with FILE.open(encoding="utf-8", newline="") as stream:
        header, *lines = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
    assert tuple(header) == tuple(field.name for field in fields(PublishedRow))
    assert {len(cells) for cells in lines} == {len(header)}
    offenders = [
        (number, name, cell)
        for number, cells in enumerate(lines, start=2)
        for name, cell in zip(header, cells, strict=True)
        if cell != cell.strip() or not re.fullmatch(PATTERNS.get(name, ".*"), cell)
    ]
    assert offenders == []
    assert {row.paper for row in ROWS} == set(PAPERS)
    assert [row for row in ROWS if row.scorer not in SCORERS[row.metric]] == []
    identities = Counter((row.paper, row.table, row.row, row.scorer) for row in ROWS)
    assert [identity for identity, count in identities.items() if count > 1] == []
    assert {row.config for row in ROWS} == set(NAMES)


def test_a_row_is_read_as_it_stands() -> None:
    row = next(row for row in ROWS if row.config == "iwslt14_de_en/admin_6e6d")
    assert (row.paper, row.table, row.row) == ("Admin", "Table 2", "IWSLT'14 De-En 6L-6L small, Admin")
    assert (row.overrides, row.seeds) == ((), (1111, 2222, 3333, 4444, 5555))
    assert (row.tokens_per_update, row.gpus, row.gpu_days, row.average) == (4096, 1, None, "last-epochs=10")
    assert (row.test, row.metric, row.scorer) == (("test",), "BLEU", "tokenised")
    assert (row.printed, row.failed, row.run_here) == ("35.67±0.15", False, "not run")
    grid = next(row for row in ROWS if row.table == "Figure 10" and row.paper == "Admin")
    assert grid.overrides == ("optimization.lr=[0.0001]", "optimizer.adam_betas='(0.9,0.999)'")
    assert [row.printed for row in rows_of("wmt14_en_de/dsinit_matt_12e12d")][:4] == ["28.55", "27.9", "27.89", "fail"]
    assert rows_of("wmt14_en_de/no_such") == ()


def test_how_a_training_ended_may_be_all_that_is_printed() -> None:
    """Table 1 of the Admin paper."""
    ends = {row.config.rpartition("/")[2]: row for row in rows_by_table()["Admin", "Table 1"]}
    assert {name: (row.printed, row.failed) for name, row in ends.items()} == {
        "post_ln_18e18d": ("fail", True),
        "hybrid_ln_18e18d": ("fail", True),
        "pre_ln_18e18d": ("converged", False),
    }


def test_the_grid_without_warm_up_is_whole() -> None:
    """Figure 10 of the Admin paper: five rates, three beta2, three methods; Post-LN fails in 7 cells, nothing else."""
    grid = rows_by_table()["Admin", "Figure 10"]
    cells = {(row.config, row.overrides) for row in grid}
    assert len(cells) == len(grid) == 45
    assert len({overrides for _, overrides in cells}) == 15
    assert [row.config for row in grid if row.failed] == ["iwslt14_de_en/post_ln_6e6d_no_warmup"] * 7


def test_as_many_numbers_as_test_sets_or_names_in_the_metric_and_their_mean() -> None:
    """One number may also be the mean over the sets. The B2T paper prints the mean of the years beside them."""
    means = 0
    for row in ROWS:
        parts = row.metric.split() if row.metric.startswith("ROUGE") else row.test
        numbers = row.printed.partition(" mean ")[0].split()
        assert len(numbers) in (1, len(parts)), row
        assert not row.metric.startswith("ROUGE") or row.printed in WITHOUT_NUMBER or len(numbers) == 3
        if " mean " in row.printed:
            means += 1
            assert len(numbers) == len(row.test) == 7
            assert float(row.summary) == pytest.approx(fmean(map(float, numbers)), abs=0.005 + 1e-9)
    assert means == 15 + 2 + 3 + 1  # Tables 1, 2 and 8, and the README


def test_every_table_has_its_script_and_every_script_its_table() -> None:
    tables, scripts = rows_by_table(), {path.name for path in (CONFIGS.parent / "scripts/reproduce").glob("*.sh")}
    assert {name for name in scripts if not name.startswith(("multi30k", "tatoeba"))} == {row.script for row in ROWS}
    assert sum(map(len, tables.values())) == len(ROWS)
    for (paper, _), rows in tables.items():
        (command,) = {row.command for row in rows}
        script = CONFIGS.parent / command.rpartition(" ")[2]
        assert os.access(script, os.X_OK), script
        assert paper in script.read_text(encoding="utf-8")
    assert tables["ReZero", "Table 3"][0].command == "TABLE=3 scripts/reproduce/rezero_enwik8.sh"
