"""The chain behind a published table, at toy size: from archives to a report, whole and restartable."""

import json
import re
import statistics
from pathlib import Path

import pytest

from fairseq_plugins.tools.cli.main import main
from fairseq_plugins.tools.pipeline import reproduce
from fairseq_plugins.tools.pipeline.compare import run_directory
from fairseq_plugins.tools.pipeline.published import rows_by_table
from tests.refusals import refused
from tests.scripts.fakes import program
from tests.scripts.running import ROOT, completed, contents, report_of


def chain(script: str, out: Path, *names: str, **settings: str) -> str:
    return completed(f"reproduce/{script}", *names, **{"OUT": str(out), "SMOKE": "1", "QUIET": "1", **settings})


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


def test_options_for_all_test_sets_are_kept(tmp_path: Path) -> None:
    (tmp_path / "test_sets").write_text("test\ttest14\n")
    given = [["test14", "test15"], ["--beam", "10"], ["test15"]]
    assert reproduce.of_prepared(given, tmp_path) == [["test14"], ["--beam", "10"]]


def test_a_dry_run_names_every_training_or_at_toy_size_one_of_each_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = ["reproduce", "Admin", "Table 2", "--out", str(tmp_path / "out"), "--dry-run", "iwslt14_de_en"]
    for more, seeds in (([], 5), (["wmt14_en_de", "--smoke"], 1)):
        assert main([*table, *more]) == 0
        commands = re.findall(r" fairseq_plugins\.tools\.cli run (\S+)", capsys.readouterr().out)
        assert [f"{Path(config).parent.name}/{Path(config).stem}" for config in commands] == [
            f"iwslt14_de_en/{method}_6e6d" for method in ("post_ln", "pre_ln", "admin") for _ in range(seeds)
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
    stand_in, place = program(tmp_path / "python", '#!/bin/sh\necho "$OUT $DATA $*"\n'), str(tmp_path / "out")
    script, settings = "reproduce/dsinit_table4.sh", {"PYTHON": stand_in, "OUT": "", "DATA": "", "SMOKE": ""}
    completed(script, "--out", place, "--dry-run", **settings)
    assert not (run / "evaluation" / "valid" / "validate.log").exists()
    assert completed(script, "--out", place, "--data", "/data", **settings).startswith(f"{place} /data -m")
    validated = (run / "evaluation" / "valid" / "validate.log").read_text()
    assert " validate /data/wmt14_en_de/data-bin --path " in validated
    for words, smoke in ((["--smoke"], ""), ([], "1")):
        toy = f"{ROOT}/runs/dsinit_table4_smoke"
        assert completed(script, *words, **{**settings, "SMOKE": smoke}).startswith(f"{toy} {toy}/data ")


def test_without_a_checkout_the_text_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reproduce, "checkout", lambda: None)
    command = ["reproduce", "Admin", "Table 2", "admin_6e6d", "--smoke", "--out", str(tmp_path / "out"), "--data"]
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
    assert "optimization.max_update=24" in first


OTHER_YEARS = tuple(f"newstest{year}" for year in (2010, 2011, 2012, 2013, 2015, 2016))
TEST14_18 = ("newstest2014-filtered", "newstest2015", "newstest2016", "newstest2017", "newstest2018")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "name", "test_sets"),
    [
        ("admin_table2.sh", "iwslt14_de_en/admin_6e6d", ("test",)),
        pytest.param("dsinit_table4.sh", "dsinit_matt_20e20d", ("valid",), marks=pytest.mark.long),
        pytest.param("dsinit_table5.sh", "wmt14_en_fr/dsinit_matt_12e12d", ("newstest2014",), marks=pytest.mark.long),
        pytest.param("dsinit_table6.sh", "dsinit_matt_12e12d_big", TEST14_18, marks=pytest.mark.long),
        pytest.param("b2t_table1.sh", "b2t_18e18d", ("newstest2014", *OTHER_YEARS), marks=pytest.mark.long),
        pytest.param("rezero_enwik8.sh", "rezero_12d", ("test",), marks=pytest.mark.long),
        pytest.param("b2t_table4.sh", "b2t_6d", ("test", "valid"), marks=pytest.mark.long),
    ],
)
def test_from_archives_to_a_report(script: str, name: str, test_sets: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "with spaces"
    chain(script, out, name)
    (row,) = report_of(out)
    assert (row["method"], row["updates"]) == (name.rpartition("/")[2], "24")
    assert reproduce.NOTE in (out / "report" / "report.md").read_text(encoding="utf-8")
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
    chain(script, out, name)
    assert final_files(out) == before
