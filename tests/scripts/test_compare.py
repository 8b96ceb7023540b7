"""``scripts/compare.sh``: a whole chain to its report, and refusals that come before days of training."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from sacrebleu.metrics import BLEU

from fairseq_plugins.pipeline.plan import Request
from tests import toy
from tests.scripts import test_evaluate, test_train
from tests.scripts.running import refusal, run

ADMIN, POST_LN = (f"configs/multi30k_de_en/{method}_3e3d.yaml" for method in ("admin", "post_ln"))


@pytest.mark.parametrize("name", ["admin", "3e3d", "configs/multi30k_de_en/admin_3e3d.yaml"])
def test_a_baseline_that_is_no_row_is_refused_at_once(tmp_path: Path, name: str) -> None:
    line = refusal("compare.sh", tmp_path, tmp_path / "out", ADMIN, POST_LN, BASELINE=name)
    assert line == (
        f"unknown BASELINE '{name.removesuffix('.yaml')}'; legal values: admin_3e3d multi30k_de_en/admin_3e3d "
        "post_ln_3e3d multi30k_de_en/post_ln_3e3d"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["post_ln_3e3d", "multi30k_de_en/post_ln_3e3d.yaml"])
def test_a_baseline_is_handed_to_the_report(tmp_path: Path, name: str) -> None:
    ended = run("compare.sh", tmp_path, tmp_path / "out", ADMIN, POST_LN, BASELINE=name, SEEDS="7", DRY_RUN="1")
    assert (ended.returncode, ended.stderr) == (0, "")
    report = ended.stdout.splitlines()[-1].split()
    assert report[report.index("--baseline") + 1] == name


def test_seeds_that_are_none_are_refused_at_once(tmp_path: Path) -> None:
    line = "SEEDS must be whole numbers, not 'x'"
    assert refusal("compare.sh", tmp_path, tmp_path / "out", ADMIN, SEEDS="1 x") == line
    assert refusal("reproduce/admin_table2.sh", "iwslt14_de_en", SEEDS="1 x", OUT=str(tmp_path / "out")) == line
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_from_prepared_text_to_a_report(tmp_path: Path) -> None:
    """What is expected is trained, averaged and translated in this process."""
    data, out = test_evaluate.prepare(tmp_path / "my corpus"), tmp_path / "out"
    changes = (*test_train.TINY, "optimization.lr=[0.01]", "lr_scheduler.warmup_updates=10")
    changes += ("optimization.max_update=111", "checkpoint.save_interval_updates=37")
    settings = {**test_evaluate.SETTINGS, "AVERAGE": "last-updates=2", "SEEDS": "3", "QUIET": "1"}
    command = ("compare.sh", data, out, test_train.POST_LN, *changes)
    run_directory = out / "post_ln_3e3d" / "seed3"
    evaluation = run_directory / "evaluation" / "test"

    ended = run(*command, **settings)
    assert ended.returncode == 0, ended.stdout + ended.stderr

    last = test_train.train_here(Request(test_train.POST_LN, data, tmp_path / "undisturbed", changes))
    expected, reached = (test_train.weights(path) for path in (last, run_directory / "checkpoints" / test_train.LAST))
    assert reached.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(reached[name], expected[name])] == []
    two = [test_train.weights(last.with_name(name)) for name in ("checkpoint_8_74.pt", "checkpoint_12_111.pt")]
    averaged = test_train.weights(run_directory / "averaged.pt")
    for name, weight in averaged.items():
        torch.testing.assert_close(weight, (two[0][name] + two[1][name]) / 2, rtol=1e-5, atol=1e-6, msg=name)

    flags = ("--lenpen", "0.5", "--max-len-b", "200")
    translated = toy.translate_toy(data / "data-bin", run_directory / "averaged.pt", tmp_path, *flags)
    assert test_evaluate.lines_of(evaluation / "hypotheses.tok") == [translated[index] for index in range(60)]
    hypotheses, references = (
        test_evaluate.lines_of(path) for path in (evaluation / "hypotheses.txt", data / "raw" / "test.en")
    )
    scores = json.loads((evaluation / "score.json").read_text())
    found = {metric["name"]: metric["value"] for metric in scores["metrics"]}
    bleu = BLEU().corpus_score(hypotheses, [references]).score
    assert (found["sacreBLEU"], scores["sentences"]) == (pytest.approx(bleu), 60)
    with (out / "report" / "report.csv").open(encoding="utf-8", newline="") as stream:
        [row] = csv.DictReader(stream)
    assert (row["method"], row["seed"], row["updates"]) == ("post_ln_3e3d", "3", "111")
    assert float(row["test sacreBLEU"]) == pytest.approx(bleu)
