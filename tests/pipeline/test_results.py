"""A run can be read in any state; each damaged file gives one line."""

from __future__ import annotations

import json

import pytest

from fairseq_plugins.errors import UserError
from fairseq_plugins.pipeline.results import find_runs, read_run
from tests.pipeline.making import write_run, write_scores


def test_everything_is_read(tmp_path):
    changes = ["optimization.lr=[0.001]"]
    run = read_run(write_run(tmp_path / "run", seed=2222, changes=changes, scores={"sacreBLEU": 35.5}))
    assert run.problems == ()
    assert (run.config, run.seed, run.updates) == ("iwslt14_de_en/admin_6e6d", 2222, 500)
    assert run.overrides == ("common.seed=2222", "optimization.lr=[0.001]")
    assert run.changes == ("optimization.lr=[0.001]",)
    assert run.log.final_valid_loss == 3.5
    assert run.evaluations["test"].metrics["sacreBLEU"].value == 35.5
    assert run.configured("model", "encoder_layers") == 6
    assert run.configured("model", "nothing") is None
    assert run.configured("nothing", "nothing") is None


def test_data_bin_is_inside_the_prepared_directory(tmp_path):
    run = read_run(write_run(tmp_path / "run", data=tmp_path / "corpus" / "data-bin"))
    assert run.data == tmp_path / "corpus"


def test_a_damaged_file_is_one_line(tmp_path, subtests):
    for number, (name, content, problem) in enumerate(
        (
            ("run.json", "{", "run.json: not JSON: "),
            ("run.json", "[1]", "run.json: not a JSON object"),
            ("run.json", None, "run.json: no such file"),
            ("finished", "half", "finished: not JSON: "),
            ("train.log", None, "train.log: no such file"),
            ("evaluation/test/score.json", '{"metrics": [', "score.json: not JSON: "),
            ("evaluation/test/score.json", None, "score.json: no such file"),
            (
                "evaluation/test/score.json",
                json.dumps({"metrics": [{"name": "BLEU"}]}),
                "a score without name or value",
            ),
            ("evaluation/test/score.json", json.dumps({"metrics": ["BLEU"]}), "a score without name or value"),
        )
    ):
        with subtests.test(problem):
            directory = write_run(tmp_path / f"run{number}", scores={"sacreBLEU": 35.5})
            (directory / name).unlink()
            if content is not None:
                (directory / name).write_text(content)
            run = read_run(directory)
            assert len(run.problems) == 1
            assert problem in run.problems[0]
            assert str(directory / name) in run.problems[0]
            assert run.updates in (500, 200)


def test_a_half_made_test_set_is_not_one(tmp_path):
    directory = write_run(tmp_path / "run", scores={"sacreBLEU": 35.5})
    write_scores(directory, "new.partial", {"sacreBLEU": 1.0})
    assert list(read_run(directory).evaluations) == ["test"]


def test_runs_are_found_below_a_directory_each_once(tmp_path):
    runs = [write_run(tmp_path / "all" / name / f"seed{seed}") for name in ("b", "a") for seed in (2, 1)]
    (tmp_path / "all" / "report").mkdir()
    assert find_runs([tmp_path / "all", runs[0]]) == sorted(runs)
    assert find_runs([runs[0], runs[2]]) == [runs[0], runs[2]]


def test_what_is_no_run_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError) as caught:
        find_runs([tmp_path / "empty", tmp_path / "absent"])
    assert caught.value.problems[0].startswith(f"{tmp_path / 'empty'}: not a run")
    assert caught.value.problems[1] == f"{tmp_path / 'absent'}: no such directory"
    with pytest.raises(UserError, match="not a run: it contains none of run.json"):
        read_run(tmp_path / "empty")
