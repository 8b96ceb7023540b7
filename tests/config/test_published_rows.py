"""The table of published results: what is in it, and what a file like it is refused for."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest

from fairseq_plugins.errors import UserError
from fairseq_plugins.pipeline.published import (
    COLUMNS,
    FILE,
    ROWS,
    SCORERS,
    PublishedRow,
    read,
    rows_by_table,
    rows_of,
)

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
LINE = dict(
    zip(
        COLUMNS,
        [
            "Admin",
            "Table 2",
            "6L",
            "iwslt14_de_en/admin_6e6d",
            "",
            "1 2",
            "4096",
            "1",
            "",
            "last-epochs=10",
            "test",
            "BLEU",
            "tokenised",
            "35.67±0.15",
            "not run",
            "",
        ],
        strict=True,
    )
)


def written(path: Path, *lines: dict[str, str]) -> Path:
    rows = [list(COLUMNS), *([line[name] for name in COLUMNS] for line in lines)]
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_every_configuration_has_a_row_and_every_row_a_configuration() -> None:
    files = {str(path.relative_to(CONFIGS).with_suffix("")) for path in CONFIGS.glob("*/*.yaml")}
    assert {row.config for row in ROWS} == {name for name in files if not name.startswith("multi30k_de_en/")}


def test_a_row_is_read_as_it_stands(tmp_path: Path) -> None:
    overrides = "optimization.lr=[0.0001] optimizer.adam_betas='(0.9,0.99)'"
    said = {"overrides": overrides, "gpu_days": "1.5", "test": "newstest2013 newstest2014", "note": "a, \"b\" and 'c'"}
    (row,) = read(written(tmp_path / "rows.tsv", {**LINE, **said}))
    assert row == PublishedRow(
        "Admin",
        "Table 2",
        "6L",
        "iwslt14_de_en/admin_6e6d",
        tuple(overrides.split()),
        (1, 2),
        4096,
        1,
        1.5,
        "last-epochs=10",
        ("newstest2013", "newstest2014"),
        "BLEU",
        "tokenised",
        "35.67±0.15",
        "not run",
        said["note"],
    )
    assert not row.failed
    assert not row.was_run
    assert row.script == "admin_table2.sh"


def test_what_is_not_said_is_none(tmp_path: Path) -> None:
    silent = {"tokens_per_update": "", "gpus": "", "printed": "fail", "run_here": "35.70, seed 1"}
    row, curve = read(written(tmp_path / "rows.tsv", {**LINE, **silent}, {**LINE, "row": "12L", "printed": "curve"}))
    assert (row.has_number, curve.has_number, curve.failed) == (False, False, False)
    assert (row.tokens_per_update, row.gpus, row.gpu_days) == (None, None, None)
    assert row.failed
    assert not row.has_number
    assert row.was_run


def test_how_a_training_ended_may_be_all_that_is_printed() -> None:
    """Table 1 of the Admin paper; section 5.2: no length of the warm-up helps."""
    tables = rows_by_table()
    ends = {row.config.rpartition("/")[2]: row for row in tables["Admin", "Table 1"]}
    assert {name: (row.printed, row.failed, row.has_number) for name, row in ends.items()} == {
        "post_ln_18e18d": ("fail", True, False),
        "hybrid_ln_18e18d": ("fail", True, False),
        "pre_ln_18e18d": ("converged", False, False),
    }
    longer = [row for row in tables["Admin", "Section 5"] if row.config == "wmt14_en_de/post_ln_18e18d"]
    assert {override for row in longer for override in row.overrides} == {
        f"lr_scheduler.warmup_updates={updates}" for updates in (16000, 24000, 32000)
    }
    assert all(row.failed for row in longer)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("paper", "Admn", "unknown paper 'Admn' (did you mean 'Admin'?); legal values: Admin, admin-torch, DS-Init"),
        ("metric", "Bleu", "unknown metric 'Bleu'"),
        ("scorer", "sacrebleu", "unknown scorer 'sacrebleu' (did you mean 'sacreBLEU'?); legal values: tokenised, "),
        ("config", "admin_6e6d", "config 'admin_6e6d': CORPUS/NAME is expected, as iwslt14_de_en/admin_6e6d"),
        ("overrides", "lr=3", "overrides 'lr=3': GROUP.KEY=VALUE are expected"),
        ("seeds", "", "seeds '': whole numbers are expected"),
        ("seeds", "1,2", "seeds '1,2': whole numbers are expected"),
        ("tokens_per_update", "4k", "tokens_per_update '4k': a whole number of at least 1, or nothing, is expected"),
        ("gpus", "0", "gpus '0': a whole number of at least 1, or nothing, is expected"),
        ("gpu_days", "two", "gpu_days 'two': a number, or nothing, is expected"),
        ("average", "last=5", "average 'last=5': last-epochs=N, last-updates=N, best=N or none is expected"),
        ("average", "best=0", "average 'best=0': last-epochs=N"),
        ("printed", "35,67", "printed '35,67': a number, MEAN±DEVIATION, several numbers, perhaps "),
        ("printed", "35.67 mean 35.67", "printed '35.67 mean 35.67': a number"),
        ("printed", "", "printed '': a number"),
        ("run_here", "", "run_here is empty"),
        ("test", " test", "test begins or ends with a space"),
    ],
)
def test_a_bad_cell_is_named_with_its_line(column: str, value: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "rows.tsv", {**LINE, "row": "other"}, {**LINE, column: value})
    with pytest.raises(UserError) as caught:
        read(path)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(f"{path}: line 3: {message}")


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.tsv", {**LINE, "seeds": "x", "gpus": "y"}, {**LINE, "average": "z"})
    with pytest.raises(UserError) as caught:
        read(path)
    assert [re.findall(r": line (\d): (\w+)", problem)[0] for problem in caught.value.problems] == [
        ("2", "seeds"),
        ("2", "gpus"),
        ("3", "average"),
    ]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text.replace("paper\t", "Paper\t", 1), "line 1: the columns must be paper, table, row"),
        (lambda text: "", "line 1: the columns must be"),
        (lambda text: text.replace("\t4096\t", "\t", 1), "line 2: 15 cells instead of 16"),
        (lambda text: text + "\n", "line 3: 0 cells instead of 16"),
        (lambda text: text + text.splitlines()[1] + "\n", "twice the same row: Admin / Table 2 / 6L / tokenised"),
    ],
)
def test_a_damaged_file_is_refused(damage: Callable[[str], str], message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "rows.tsv", LINE)
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(f"{path}: {message}")):
        read(path)


def test_as_many_numbers_as_test_sets_or_names_in_the_metric() -> None:
    """One number may also be the mean over the sets."""
    for row in ROWS:
        parts = row.metric.split() if row.metric.startswith("ROUGE") else row.test
        numbers = row.printed.partition(" mean ")[0].split()
        assert len(numbers) in (1, len(parts)), row
        assert not row.metric.startswith("ROUGE") or not row.has_number or len(numbers) == 3


def test_the_grid_without_warm_up_is_whole() -> None:
    """Figure 10 of the Admin paper: five rates, three beta2, three methods; Post-LN fails in 7 cells, nothing else."""
    grid = [row for row in ROWS if (row.paper, row.table) == ("Admin", "Figure 10")]
    cells = {(row.config, row.overrides) for row in grid}
    assert len(cells) == len(grid) == 45
    assert len({overrides for _, overrides in cells}) == 15
    assert {row.config for row in grid if row.failed} == {"iwslt14_de_en/post_ln_6e6d_no_warmup"}
    assert sum(row.failed for row in grid) == 7


def test_a_printed_mean_is_that_of_the_years_beside_it() -> None:
    """All rows of the B2T paper's Tables 1, 2 and 8 and of its README."""
    rows = [row for row in ROWS if " mean " in row.printed]
    assert len(rows) == 15 + 2 + 3 + 1
    for row in rows:
        years = [float(number) for number in row.printed.partition(" mean ")[0].split()]
        assert len(years) == len(row.test) == 7
        assert float(row.summary) == pytest.approx(fmean(years), abs=0.005 + 1e-9)


def test_what_the_b2t_paper_prints_is_there() -> None:
    """Rows of each of its tables, and how many of them failed; text and tables name the methods."""
    tables = {table: rows for (paper, table), rows in rows_by_table().items() if paper == "B2T"}
    found = {table: (len(rows), sum(row.failed for row in rows)) for table, rows in tables.items()}
    assert found == {
        "Table 1": (16 + 2, 1),
        "Table 2": (3, 1),
        "Table 3": (16, 1),
        "Table 4": (6, 1),
        "Table 5": (6, 1),
        "Table 8": (3, 0),
        "Table 9": (2, 0),
        "Figure 8": (2, 0),
        "Figure 9": (6, 0),
        "Figure 10": (2, 1),
        "README": (1, 0),
    }
    curves = [row for rows in tables.values() for row in rows if row.printed == "curve"]
    assert {row.table for row in curves} == {"Figure 8", "Figure 9", "Figure 10"}
    assert not any(row.has_number for row in curves)


def test_gpu_days_are_gpus_times_hours() -> None:
    """Table 7 of the B2T paper, and its appendix A.2 for 100 layers; GPUs of two tasks differ by depth."""
    hours = {
        ("wmt16_en_de", 6): (128, 5),
        ("wmt16_en_de", 18): (128, 13),
        ("wmt16_en_de", 100): (24, 120),
        ("headline", 6): (64, 4),
        ("headline_extended", 18): (144, 17),
        ("wikitext103", 6): (128, 4),
        ("wikitext103", 16): (192, 7),
        ("librispeech", 6): (32, 22),
        ("librispeech", 12): (32, 34),
    }
    seen = set()
    for row in ROWS:
        if row.paper == "B2T" and row.gpu_days is not None:
            corpus, _, name = row.config.partition("/")
            depth = int(re.findall(r"_(\d+)[ed]", name)[0])
            gpus, wanted = hours[corpus, depth]
            assert row.gpus == gpus
            assert row.gpu_days == pytest.approx(gpus * wanted / 24, abs=0.051)
            seen.add((corpus, depth))
    assert seen == set(hours)


def test_rows_by_configuration_and_by_table() -> None:
    printed = [row.printed for row in rows_of("wmt14_en_de/dsinit_matt_12e12d")]
    assert printed == ["28.55", "27.9", "27.89", "fail", "26.51", "4.71"]
    assert rows_of("wmt14_en_de/no_such") == ()
    tables = rows_by_table()
    assert sum(map(len, tables.values())) == len(ROWS)
    assert len(tables["Admin", "Table 2"]) == 18
    assert {row.script for row in tables["DS-Init", "Table 3"]} == {"dsinit_table3.sh"}
    assert {row.script for row in tables["admin-torch", "README"]} == {"admin_torch_readme.sh"}
    assert {row.script for row in tables["ReZero", "Table 2"]} == {"rezero_enwik8.sh"}


def test_every_table_has_its_script() -> None:
    for (paper, _), rows in rows_by_table().items():
        (command,) = {row.command for row in rows}
        script = CONFIGS.parent / command.rpartition(" ")[2]
        assert os.access(script, os.X_OK), script
        assert paper in script.read_text(encoding="utf-8")
    assert rows_by_table()["ReZero", "Table 3"][0].command == "TABLE=3 scripts/reproduce/rezero_enwik8.sh"


def test_the_file_says_nothing_about_scorers_that_nobody_knows() -> None:
    assert read(FILE) == ROWS
    assert {(row.metric, row.scorer) for row in ROWS} <= {
        (metric, one) for metric, scorers in SCORERS.items() for one in scorers
    }
