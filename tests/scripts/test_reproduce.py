"""The chain behind a published table, at toy size: from archives to a report, whole and restartable."""

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairseq_plugins.tools.cli.main import main
from fairseq_plugins.tools.pipeline import reproduce
from fairseq_plugins.tools.pipeline.checkout import CONFIGS
from fairseq_plugins.tools.pipeline.compare import run_directory
from fairseq_plugins.tools.pipeline.published import rows_by_table
from tests.refusals import refused
from tests.scripts.archives import write_archives
from tests.scripts.fakes import program
from tests.scripts.running import ROOT, completed, contents, report_of

UPDATES = 24
SIZES: dict[str, Any] = {
    **{"layers": 2, "ffn_embed_dim": 64, "embed_dim": 32, "output_dim": 32, "input_dim": 32},
    **{"attention_heads": 2, "cutoff": "20,40"},
}
"""Sizes of a toy model, by the end of a setting's name; the first match counts."""
BUDGET: dict[str, dict[str, Any]] = {
    "optimization": {"max_update": UPDATES, "max_epoch": 0, "update_freq": [1]},
    "dataset": {"max_tokens": 600, "num_workers": 0},
    "checkpoint": {"save_interval_updates": 4, "keep_interval_updates": 2},
}
WHERE_SET: dict[str, dict[str, Any]] = {
    "task": {"tokens_per_sample": 64},
    "lr_scheduler": {"warmup_updates": 4, "total_num_update": UPDATES, "lr_period_updates": UPDATES},
    "eval_lm": {"context_window": 16},
    "dataset": {"batch_size": None},
}


def toy(config: str, here: Path) -> dict[str, str]:
    """Small archives of a configuration's corpus, and a Python for PYTHON that finds a small configuration instead."""
    text = (CONFIGS / f"{config}.yaml").read_text(encoding="utf-8")
    recipe = yaml.safe_load(text)
    for name, value in recipe["model"].items():
        fitting = [size for end, size in SIZES.items() if name.endswith(f"_{end}")]
        recipe["model"][name] = next(iter(fitting), value)
    for group, values in BUDGET.items():
        recipe.setdefault(group, {}).update(values)
    for group, values in WHERE_SET.items():
        own = recipe.get(group, {})
        own.update({name: value for name, value in values.items() if name in own})
    file = here / "configs" / f"{config}.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("".join(re.findall("^# Data:.*\n", text, re.MULTILINE)) + yaml.safe_dump(recipe))
    write_archives(file.parent.name, here / "archives")
    stand_in = f"""#!{sys.executable}
import pathlib, runpy, sys
from fairseq_plugins.tools.pipeline import checkout
checkout.CONFIGS = pathlib.Path({str(here / "configs")!r})
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
    archives = {"ARCHIVE_DIR": str(here / "archives"), "CHECKSUMS": "/dev/null", "VALID": "newstest2013"}
    return {"PYTHON": program(here / "python", stand_in), **archives}


LEFT_OUT = {"checkpoints", "report", "work", "train.log", "run.json"}
"""Logs, training state and times."""


def final_files(out: Path) -> dict[str, bytes]:
    """All results of a chain."""
    return {name: content for name, content in contents(out).items() if not LEFT_OUT.intersection(Path(name).parts)}


ALLOWED = re.compile(r"[\d,]+ of [\d,]+ tokens unknown|published text changed as text\.json says: [a-z ,]+")
"""Known differences of the texts of these archives."""


def check_references(evaluation: Path) -> None:
    """A perfect translation would have the best score, except for known differences, which are named."""
    check = json.loads((evaluation / "self-check.json").read_text(encoding="utf-8"))
    assert check["lines"] > 0
    assert check["bleu"] in (100, None)
    # The detokeniser of French writes a space before ? and !, and BLEU splits them off anyway.
    if "wmt14_en_fr" not in evaluation.parts:
        assert check["differing"] == 0
    assert (check["problem"], check["accepted"]) == ("", "")
    assert all(map(ALLOWED.fullmatch, check["allowed"]))


def test_the_printed_test_sets_are_evaluated_with_their_length_penalties_if_they_were_prepared() -> None:
    tables = rows_by_table()
    others = ["newstest2010", "newstest2011", "newstest2012", "newstest2013", "newstest2015", "newstest2016"]
    penalty = ["newstest2014", "--length-penalty=0.6"]
    for table, prepared, calls in (
        (("B2T", "Table 1"), None, [others, penalty]),
        (("B2T", "Table 1"), {"valid", "newstest2014"}, [penalty]),
        (("B2T", "Table 1"), {"valid", "test"}, [[]]),
        (("B2T", "Table 4"), {"valid", "test"}, [["valid", "test"]]),
        (("B2T", "Figure 8"), None, []),
    ):
        assert reproduce.evaluations(tables[table], prepared) == calls


def test_a_dry_run_names_every_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "Admin", "Table 2", "--out", str(tmp_path / "out"), "--dry-run", "iwslt14_de_en"]) == 0
    commands = re.findall(r" fairseq_plugins\.tools\.cli run (\S+)", capsys.readouterr().out)
    assert [f"{Path(config).parent.name}/{Path(config).stem}" for config in commands] == [
        f"iwslt14_de_en/{method}_6e6d" for method in ("post_ln", "pre_ln", "admin") for _ in range(5)
    ]
    assert not (tmp_path / "out").exists()


def test_a_name_may_be_a_point_of_a_sweep() -> None:
    rows = rows_by_table()["Admin", "Figure 10"]
    point = "admin_6e6d_no_warmup,lr=0.0003,adam_betas=0.9_0.99"
    for names, count in (([point], 1), (["lr=0.0003"], 9), (["pre_ln_6e6d_no_warmup,lr=0.0003", point], 4), ([], 45)):
        chosen = reproduce.trainings(rows, names)
        assert len(chosen) == count
        # The name of a point is that of its directory.
        assert point in {run_directory(Path(), one.file, 1, one.overrides).parent.name for one in chosen}
    unknown = refused(reproduce.trainings, rows, ["admin_6e6d_no_warmup,lr=0.003", "lr=0.0003"])
    assert unknown.startswith("unknown row 'admin_6e6d_no_warmup,lr=0.003' (did you mean 'admin_6e6d_no_warmup'?)")


def test_table_4_of_dsinit_validates_the_runs_of_the_place_that_is_given(tmp_path: Path) -> None:
    run = tmp_path / "out" / "wmt14_en_de" / "dsinit_matt_20e20d" / "seed1234"
    (run / "evaluation" / "valid").mkdir(parents=True)
    (run / "averaged.pt").touch()
    stand_in, place = program(tmp_path / "python", '#!/bin/sh\necho "$*"\n'), str(tmp_path / "out")
    script, settings = "reproduce/dsinit_table4.sh", {"PYTHON": stand_in, "OUT": "", "DATA": ""}
    completed(script, "--out", place, "--dry-run", **settings)
    assert not (run / "evaluation" / "valid" / "validate.log").exists()
    assert f" --out {place} --data /data\n" in completed(script, "--out", place, "--data", "/data", **settings)
    validated = (run / "evaluation" / "valid" / "validate.log").read_text()
    assert " validate /data/wmt14_en_de/data-bin --path " in validated
    usual = f"{ROOT}/runs/dsinit_table4"
    assert f" --out {usual} --data {usual}/data\n" in completed(script, **settings)


def test_without_a_checkout_the_text_must_be_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reproduce, "checkout", lambda: None)
    command = ["reproduce", "Admin", "Table 2", "admin_6e6d", "--out", str(tmp_path / "out"), "--data"]
    command += [str(tmp_path / "data"), "--dry-run"]
    assert main(command) == 2
    error = capsys.readouterr().err.splitlines()[0]
    assert error == (
        f"error: {tmp_path}/data/iwslt14_de_en: no such directory, and the scripts that prepare corpora are in a "
        "checkout; prepare the text with fairseq-deep prepare, and give the directory above iwslt14_de_en with --data"
    )
    assert list(tmp_path.iterdir()) == []
    for corpus in ("iwslt14_de_en", "wmt14_en_de", "wmt14_en_fr"):
        (tmp_path / "data" / corpus / "data-bin").mkdir(parents=True)
    assert main(command) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert f"iwslt14_de_en/admin_6e6d.yaml {tmp_path}/data/iwslt14_de_en {tmp_path}/out/" in first


OTHER_YEARS = tuple(f"newstest{year}" for year in (2010, 2011, 2012, 2013, 2015, 2016))
TEST14_18 = ("newstest2014-filtered", "newstest2015", "newstest2016", "newstest2017", "newstest2018")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "name", "test_sets"),
    [
        ("admin_table2.sh", "iwslt14_de_en/admin_6e6d", ("test",)),
        pytest.param("dsinit_table4.sh", "wmt14_en_de/dsinit_matt_20e20d", ("valid",), marks=pytest.mark.long),
        pytest.param("dsinit_table5.sh", "wmt14_en_fr/dsinit_matt_12e12d", ("newstest2014",), marks=pytest.mark.long),
        pytest.param("dsinit_table6.sh", "wmt14_en_de/dsinit_matt_12e12d_big", TEST14_18, marks=pytest.mark.long),
        pytest.param("b2t_table1.sh", "wmt16_en_de/b2t_18e18d", ("newstest2014", *OTHER_YEARS), marks=pytest.mark.long),
        pytest.param("rezero_enwik8.sh", "enwik8/rezero_12d", ("test",), marks=pytest.mark.long),
        pytest.param("b2t_table4.sh", "wikitext103/b2t_6d", ("test", "valid"), marks=pytest.mark.long),
    ],
)
def test_from_archives_to_a_report(script: str, name: str, test_sets: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "with spaces"
    words = (name, "--out", out, "--seeds", "1", "--quiet", "--precision", "fp32", "--average", "last-updates=2")
    settings = {"TABLE": "3", **toy(name, tmp_path)}
    completed(f"reproduce/{script}", *words, **settings)
    (row,) = report_of(out)
    assert (row["method"], row["updates"]) == (name.rpartition("/")[2], str(UPDATES))
    scores = {path.parent.name: path.parent for path in out.glob("*/*/seed*/evaluation/*/score.json")}
    assert sorted(scores) == sorted(test_sets)
    if script == "dsinit_table4.sh":
        assert "valid on 'valid' subset" in (scores["valid"] / "validate.log").read_text(encoding="utf-8")
    if script == "dsinit_table6.sh":
        columns = [f"{test_set} sacreBLEU" for test_set in (*test_sets, "average")]
        *scored, mean = (float(row[column]) for column in columns)
        assert mean == pytest.approx(statistics.fmean(scored), abs=0.01)
    for evaluation in scores.values():
        check_references(evaluation)
    before = final_files(out)
    completed(f"reproduce/{script}", *words, **settings)
    assert final_files(out) == before
