"""The leaderboard of made runs with known numbers: means and deviations by hand, tests as sacreBLEU's own command."""

from __future__ import annotations

import csv
import io
import json
import random
import subprocess
import sys

import pytest

from fairseq_plugins import plots
from fairseq_plugins.demo import __main__ as demo
from fairseq_plugins.pipeline import compare, report, reproduce
from tests.pipeline.making import SIGNATURE, write_run, write_scores

REFERENCES = [
    f"The {animal} sees a {thing} near the old house ."
    for animal in ("cat", "dog", "fox", "owl", "cow")
    for thing in ("tree", "lamp", "door", "bird")
]


def translations(wrong: int, seed: int) -> list[str]:
    """The references with ``wrong`` of their words replaced."""
    chosen = random.Random(seed)
    lines = [line.split() for line in REFERENCES]
    for _ in range(wrong):
        line = chosen.choice(lines)
        line[chosen.randrange(len(line))] = "thing"
    return [" ".join(line) for line in lines]


def call(capsys, *arguments) -> tuple[int, str, str]:
    code = report.main(list(map(str, arguments)))
    said = capsys.readouterr()
    return code, said.out, said.err


def made(tmp_path, capsys, *arguments):
    """The JSON of a report of all runs in ``tmp_path/runs``."""
    code, out, err = call(capsys, tmp_path / "runs", "--output", tmp_path / "report", *arguments)
    assert (code, err) == (0, "")
    return json.loads((tmp_path / "report" / "report.json").read_text(), parse_constant=pytest.fail), out


def row_of(out: str, label: str) -> str:
    return next(line for line in out.splitlines() if line.startswith(label))


@pytest.fixture
def pictures():
    """For a test that reads the picture: write it."""


@pytest.fixture(autouse=True)
def _empty_pictures(request, monkeypatch):
    """In the other tests the figure is built but not drawn, which takes longer than the rest of a report."""
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr(plots, "save", lambda canvas, path: path.touch())


@pytest.fixture
def two_methods(tmp_path):
    """Admin with 3 seeds and Pre-LN with 2, each better or worse by a known amount."""
    for seed, bleu, loss in ((3333, 37.0, 3.0), (1111, 35.0, 4.0), (2222, 36.0, 5.0)):
        write_run(
            tmp_path / "runs" / "a" / f"seed{seed}",
            seed=seed,
            valid={100: loss},
            scores={"sacreBLEU": bleu, "tokenised BLEU": bleu + 1, "chrF": 50.0},
            texts=(translations(4, seed), REFERENCES),
            speeds=(1000.0, 3000.0, 2000.0),
        )
    for seed, bleu in ((1111, 34.0), (2222, 34.5)):
        write_run(
            tmp_path / "runs" / "b" / f"seed{seed}",
            seed=seed,
            config="iwslt14_de_en/pre_ln_6e6d",
            scores={"sacreBLEU": bleu, "tokenised BLEU": bleu + 1, "chrF": 50.0},
            texts=(translations(90, seed), REFERENCES),
        )
    return tmp_path


def test_seeds_of_a_recipe_are_one_row_with_mean_and_deviation(two_methods, capsys):
    content, out = made(two_methods, capsys)
    admin, pre_ln = content["groups"]
    assert (admin["method"], admin["seeds"], admin["layers"]) == ("admin_6e6d", [1111, 2222, 3333], "6-6")
    # 35, 36, 37: mean 36, deviation sqrt((1 + 0 + 1) / 2) = 1.
    assert admin["scores"][0] == {
        "test_set": "test",
        "metric": "sacreBLEU",
        "mean": 36.0,
        "deviation": 1.0,
        "values": [35.0, 36.0, 37.0],
    }
    assert admin["valid_loss"]["mean"] == 4.0
    assert admin["tokens_per_second"] == 2000.0
    # 34 and 34.5: deviation 0.5 / sqrt(2).
    assert pre_ln["scores"][0]["deviation"] == pytest.approx(0.35355, abs=1e-5)
    assert "36.00 ± 1.00" in row_of(out, "admin_6e6d")
    assert "37.00 ± 1.00" in row_of(out, "admin_6e6d")
    assert "34.25 ± 0.35" in row_of(out, "pre_ln_6e6d")
    assert "36,741,120" in row_of(out, "admin_6e6d")
    assert f"sacreBLEU: {SIGNATURE}" in out


def test_the_paper_s_numbers_stand_beside_ours_and_their_score_is_shown(two_methods, capsys):
    content, out = made(two_methods, capsys)
    assert [column["metric"] for column in content["groups"][0]["scores"]] == ["sacreBLEU", "tokenised BLEU"]
    assert "35.67±0.15" in row_of(out, "admin_6e6d")
    assert "35.50±0.04" in row_of(out, "pre_ln_6e6d")
    assert "admin_6e6d: 35.67±0.15 BLEU (tokenised) on test: Admin, Table 2" in out


def test_a_changed_recipe_is_not_set_beside_the_paper(tmp_path, capsys):
    write_run(tmp_path / "runs" / "small", changes=["model.encoder_layers=3"], scores={"sacreBLEU": 20.0})
    _, out = made(tmp_path, capsys)
    assert "35.67" not in out
    assert "differs from the published recipe, so its number is not shown: model.encoder_layers=3" in out


def test_changes_that_rows_do_not_share_are_in_their_names(tmp_path, capsys):
    for name, dropout in (("x", 0.1), ("y", 0.2)):
        write_run(
            tmp_path / "runs" / name,
            changes=[f"model.dropout={dropout}", "dataset.max_tokens=100"],
            scores={"sacreBLEU": 1.0},
        )
    content, _ = made(tmp_path, capsys)
    assert [group["method"] for group in content["groups"]] == [
        "admin_6e6d model.dropout=0.1",
        "admin_6e6d model.dropout=0.2",
    ]


def test_precisions_are_rows_of_their_own(tmp_path, capsys):
    for name, seed, precision, bleu in (("a", 1, "fp32", 30.0), ("b", 2, "fp16", 20.0), ("c", 3, "fp32", 32.0)):
        write_run(tmp_path / "runs" / name, seed=seed, precision=precision, scores={"sacreBLEU": bleu})
    content, _ = made(tmp_path, capsys, "--baseline", "admin_6e6d PRECISION=fp16")
    assert [(group["method"], group["precision"], group["seeds"]) for group in content["groups"]] == [
        ("admin_6e6d PRECISION=fp32", "fp32", [1, 3]),
        ("admin_6e6d PRECISION=fp16", "fp16", [2]),
    ]
    assert [group["scores"][0]["mean"] for group in content["groups"]] == [31.0, 20.0]


def test_a_precision_that_all_rows_share_is_not_in_their_names(tmp_path, capsys):
    for method in ("admin", "post_ln"):
        write_run(tmp_path / "runs" / method, config=f"iwslt14_de_en/{method}_6e6d", precision="bf16")
    content, _ = made(tmp_path, capsys)
    assert [group["method"] for group in content["groups"]] == ["admin_6e6d", "post_ln_6e6d"]


def test_a_run_whose_settings_are_lost_leaves_the_names_of_the_others(tmp_path, capsys):
    write_run(tmp_path / "runs" / "a", changes=["model.dropout=0.1"], precision="fp32")
    lost = write_run(tmp_path / "runs" / "b")
    (lost / "run.json").write_text('{"config": "iwsl')
    content, _ = made(tmp_path, capsys)
    first, second = content["groups"]
    assert first["method"] == "admin_6e6d"
    assert second["method"].endswith("runs/b")
    assert any(note.startswith(f"{lost / 'run.json'}: not JSON") for note in content["notes"])


def test_a_file_is_no_run(two_methods, capsys):
    file = two_methods / "runs" / "a" / "seed1111" / "run.json"
    assert call(capsys, file) == (2, "", f"error: {file}: not a directory\n")


def test_p_values_are_those_of_sacrebleu_s_own_command(tmp_path, capsys):
    for name, config, wrong in (("a", "post_ln_6e6d", 30), ("b", "admin_6e6d", 20)):
        write_run(
            tmp_path / "runs" / name,
            config=f"iwslt14_de_en/{config}",
            scores={"sacreBLEU": 1.0},
            texts=(translations(wrong, wrong), REFERENCES),
        )
    content, _ = made(tmp_path, capsys)
    files = [str(tmp_path / "runs" / name / "evaluation" / "test" / "hypotheses.txt") for name in "ab"]
    references = str(tmp_path / "runs" / "a" / "evaluation" / "test" / "references.txt")
    command = [sys.executable, "-m", "sacrebleu", references, "-i", *files, "--paired-bs", "--format", "json"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    (ours,) = content["significance"]
    assert ours["p"] == said[1]["BLEU"]["p_value"]
    assert ours["difference"] == pytest.approx(said[1]["BLEU"]["score"] - said[0]["BLEU"]["score"], abs=0.06)
    assert 0 < ours["p"] < 1


def test_what_differs_clearly_is_marked_on_both_counts(two_methods, capsys):
    content, out = made(two_methods, capsys, "--samples", "200")
    assert content["baseline"] == "admin_6e6d"
    assert {test["test"] for test in content["significance"]} == {"paired bootstrap", "Welch's t-test over runs"}
    assert "34.25 ± 0.35 *†" in row_of(out, "pre_ln_6e6d")
    assert "*" not in row_of(out, "admin_6e6d")
    assert "* differs" not in out


def test_the_baseline_can_be_named(two_methods, capsys):
    content, _ = made(two_methods, capsys, "--baseline", "pre_ln_6e6d", "--samples", "100")
    assert content["baseline"] == "pre_ln_6e6d"
    assert {test["system"] for test in content["significance"]} == {"admin_6e6d"}


def test_equal_translations_are_not_marked(tmp_path, capsys):
    for config in ("post_ln_6e6d", "admin_6e6d"):
        write_run(
            tmp_path / "runs" / config,
            config=f"iwslt14_de_en/{config}",
            scores={"sacreBLEU": 1.0},
            texts=(translations(9, 1), REFERENCES),
        )
    content, _ = made(tmp_path, capsys, "--samples", "100")
    assert content["significance"][0]["p"] == 1.0


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ((REFERENCES, REFERENCES[:-1] + ["Another ."]), "its references differ"),
        ((REFERENCES[:-1], REFERENCES), "19 translations for 20 sentences"),
        (None, "hypotheses.txt is missing or not UTF-8"),
    ],
)
def test_what_cannot_be_compared_is_said_and_not_compared(tmp_path, capsys, texts, why):
    write_run(tmp_path / "runs" / "a", scores={"sacreBLEU": 1.0}, texts=(REFERENCES, REFERENCES))
    write_run(tmp_path / "runs" / "b", config="iwslt14_de_en/pre_ln_6e6d", scores={"sacreBLEU": 1.0}, texts=texts)
    content, _ = made(tmp_path, capsys)
    assert content["significance"] == []
    assert [note for note in content["notes"] if why in note]


def test_runs_without_a_result_are_rows_that_say_so(two_methods, capsys):
    write_run(
        two_methods / "runs" / "c" / "1",
        config="iwslt14_de_en/post_ln_6e6d",
        seed=1,
        valid={1: float("nan")},
        finished={"num_updates": 1, "epochs": 1, "outcome": "diverged", "reason": "Loss is NaN"},
    )
    write_run(two_methods / "runs" / "c" / "2", config="iwslt14_de_en/post_ln_6e6d", seed=2, finished={})
    content, out = made(two_methods, capsys, "--samples", "0")
    assert content["groups"][2]["verdict"] == "1 diverged, 1 not finished"
    assert any(note.endswith("not finished: 200 of 500 updates") for note in content["notes"])
    assert any(note.endswith("diverged: Loss is NaN") for note in content["notes"])
    assert content["significance"] == []
    assert content["groups"][2]["scores"][0] == {"test_set": "test", "metric": "sacreBLEU"}
    assert row_of(out, "post_ln_6e6d")


def test_a_score_of_some_seeds_says_of_how_many(two_methods, capsys):
    write_run(two_methods / "runs" / "b" / "third", config="iwslt14_de_en/pre_ln_6e6d", seed=3333)
    _, out = made(two_methods, capsys, "--samples", "0")
    assert "34.25 ± 0.35 (2 of 3)" in row_of(out, "pre_ln_6e6d")


def test_several_test_sets_have_a_mean(tmp_path, capsys):
    for name, config, sets in (("a", "post_ln_6e6d", (20.0, 26.0)), ("b", "pre_ln_6e6d", (21.0,))):
        directory = write_run(tmp_path / "runs" / name, config=f"iwslt14_de_en/{config}")
        for place, bleu in enumerate(sets, start=2013):
            write_scores(directory, f"newstest{place}", {"sacreBLEU": bleu})
    content, out = made(tmp_path, capsys)
    assert [score.get("mean") for score in content["groups"][0]["scores"]] == [20.0, 26.0, 23.0]
    assert "pre_ln_6e6d: not evaluated on newstest2014" in out
    # The mean over fewer test sets would not be the same quantity.
    assert content["groups"][1]["scores"][1] == {"test_set": "newstest2014", "metric": "sacreBLEU"}


def test_two_reports_of_the_same_runs_are_the_same_bytes(two_methods, tmp_path, capsys, pictures):
    files = []
    for name in ("one", "two"):
        assert call(capsys, two_methods / "runs", "--output", tmp_path / name, "--samples", "50")[0] == 0
        files.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert sorted(files[0]) == ["report.csv", "report.json", "report.md", "report.png"]
    assert files[0] == files[1]


def test_speed_and_device_are_shown(two_methods, capsys):
    _, out = made(two_methods, capsys, "--samples", "0")
    assert row_of(out, "admin_6e6d").split()[-3:] == ["2,000", "Tiny", "CPU"]


def test_csv_has_a_line_for_each_run(two_methods, capsys):
    made(two_methods, capsys, "--samples", "0")
    rows = list(csv.DictReader(io.StringIO((two_methods / "report" / "report.csv").read_text())))
    assert [(row["method"], row["seed"], float(row["test sacreBLEU"])) for row in rows] == [
        ("admin_6e6d", "1111", 35.0),
        ("admin_6e6d", "2222", 36.0),
        ("admin_6e6d", "3333", 37.0),
        ("pre_ln_6e6d", "1111", 34.0),
        ("pre_ln_6e6d", "2222", 34.5),
    ]
    assert {(row["batch"], row["device"]) for row in rows} == {("2048 x 1 x 16", "Tiny CPU")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--baseline", "pre_ln"], "unknown --baseline 'pre_ln' (did you mean 'pre_ln_6e6d'?)"),
        (["--scores", "sacrBLEU"], "unknown score 'sacrBLEU' (did you mean 'sacreBLEU'?)"),
        (["--score", "chrF"], "unknown option '--score' (did you mean '--scores'?)"),
        (["--samples", "-1"], "--samples -1: not a whole number of at least 0"),
    ],
)
def test_a_wrong_name_is_one_line(two_methods, capsys, arguments, message):
    code, out, err = call(capsys, two_methods / "runs", "--output", two_methods / "report", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", [report, compare, reproduce, demo])
def test_help_is_plain_text(capsys, command):
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    assert ended.value.code == 0
    assert "`" not in capsys.readouterr().out


def test_scores_can_be_chosen(two_methods, capsys):
    content, _ = made(two_methods, capsys, "--samples", "0", "--scores", "chrF")
    assert [column["metric"] for column in content["groups"][0]["scores"]] == ["chrF"]


def test_an_output_that_cannot_be_written_is_one_line(two_methods, capsys):
    (two_methods / "taken").write_text("")
    code, _, err = call(capsys, two_methods / "runs", "--samples", "0", "--output", two_methods / "taken")
    assert code == 2
    assert err == f"error: {two_methods / 'taken'}: cannot be written: file exists\n"


def test_without_matplotlib_there_is_a_line_and_no_picture(two_methods, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    _, out = made(two_methods, capsys, "--samples", "0")
    assert plots.NO_MATPLOTLIB in out
    assert not (two_methods / "report" / "report.png").exists()
    assert "report.png" not in (two_methods / "report" / "report.md").read_text()


def test_the_picture_shows_a_curve_a_row_and_a_bar_with_its_error(two_methods):
    lines, bars = report.picture(report.make_report([two_methods / "runs"], samples=0)).panels
    assert lines.title == "validation loss, mean over the seeds"
    # 4.0 is the mean of 3, 4 and 5.
    assert [(line.label, line.points) for line in lines.lines] == [
        ("admin_6e6d", [(100, 4.0)]),
        ("pre_ln_6e6d", [(100, 4.0), (200, 3.5)]),
    ]
    assert bars.title == "sacreBLEU, mean and standard deviation over the seeds"
    assert bars.categories == ["admin_6e6d", "pre_ln_6e6d"]
    assert bars.series == [("", [36.0, 34.25])]
    assert bars.errors == [[1.0, pytest.approx(0.35355, abs=1e-5)]]


def test_of_one_seed_nothing_is_called_a_mean_and_the_picture_has_names_without_groups(tmp_path, capsys):
    for name, lr in (("a", "[0.1]"), ("b", "[0.2]")):
        write_run(tmp_path / "runs" / name, changes=[f"optimization.lr={lr}"], scores={"sacreBLEU": 20.0})
    lines, bars = report.picture(report.make_report([tmp_path / "runs"], samples=0)).panels
    assert (lines.title, bars.title) == ("validation loss", "sacreBLEU")
    assert bars.categories == lines.labels == ["admin_6e6d lr=[0.1]", "admin_6e6d lr=[0.2]"]
    _, out = made(tmp_path, capsys, "--samples", "0")
    assert "±: standard deviation" not in out


def test_what_a_paper_reads_from_its_training_is_read_from_ours(tmp_path, capsys):
    write_run(tmp_path / "runs" / "a", config="enwik8/rezero_12d", valid={100: 1.31, 200: 1.2, 300: 1.1})
    write_run(tmp_path / "runs" / "b", config="enwik8/pre_ln_12d", valid={100: 1.31, 200: 1.25})
    content, out = made(tmp_path, capsys)
    name = "updates to 1.2 bits per byte"
    assert content["groups"][0]["scores"] == [
        {"test_set": "valid", "metric": name, "mean": 200.0, "deviation": None, "values": [200.0]}
    ]
    assert content["groups"][1]["scores"] == [{"test_set": "valid", "metric": name}]
    # Two tables print it, with different scores.
    assert f"8800 {name}; 1.17 bits per byte" in row_of(out, "rezero_12d")
    assert row_of(out, "pre_ln_12d").split()[7] == "17765"


def test_damaged_files_are_said_under_the_table(two_methods, capsys):
    damaged = two_methods / "runs" / "a" / "seed1111" / "evaluation" / "test" / "score.json"
    damaged.write_text("{")
    content, out = made(two_methods, capsys, "--samples", "0")
    assert [note for note in content["notes"] if note.startswith(f"{damaged}: not JSON: ")]
    assert "36.50 ± 0.71 (2 of 3)" in row_of(out, "admin_6e6d")


def test_nothing_to_report_is_one_line(tmp_path, capsys):
    code, out, err = call(capsys, tmp_path, "--output", tmp_path / "report")
    assert (code, out) == (2, "")
    assert err == f"error: {tmp_path}: not a run, and no run below it (no run.json or train.log)\n"


def test_what_was_not_decoded_alike_is_said(two_methods, capsys):
    runs = two_methods / "runs"
    for place, beam in ((runs / "a", 5), (runs / "b" / "seed1111", 5), (runs / "b" / "seed2222", 4)):
        for score in place.rglob("score.json"):
            score.with_name("settings").write_text(f"average=last-epochs=10\nupdates={beam}00\nbeam={beam}\n")
    content, _ = made(two_methods, capsys, "--samples", "0")
    assert "test: settings differ: beam is 5 for admin_6e6d, pre_ln_6e6d; 4 for pre_ln_6e6d" in content["notes"]
    assert len([note for note in content["notes"] if "settings differ" in note]) == 1


def test_scores_with_other_signatures_are_said(two_methods, capsys):
    score = two_methods / "runs" / "b" / "seed2222" / "evaluation" / "test" / "score.json"
    score.write_text(score.read_text().replace("case:mixed", "case:lc"))
    content, _ = made(two_methods, capsys, "--samples", "0")
    assert any(note.startswith("test: settings differ: signature of sacreBLEU is nrefs:1") for note in content["notes"])


def test_a_score_without_case_is_tested_without_case(tmp_path, capsys):
    """Lower-cased chrF is equal for two outputs that differ only in case; there is no other score."""
    for name, change in (("a", str), ("b", str.upper)):
        directory = write_run(tmp_path / "runs" / name, config=f"iwslt14_de_en/{name}")
        texts = ([change(line) for line in translations(4, 1)], REFERENCES)
        write_scores(directory, "test", {"chrF": 50.0}, texts)
        score = directory / "evaluation" / "test" / "score.json"
        score.write_text(score.read_text().replace("case:mixed", "case:lc"))
    content, _ = made(tmp_path, capsys)
    assert [test["difference"] for test in content["significance"]] == [0.0]


@pytest.mark.parametrize(("average", "said"), [("last-epochs=10", False), ("none", True), ("last-epochs=10,ema", True)])
def test_another_average_than_the_published_is_said(average, said, tmp_path, capsys):
    directory = write_run(tmp_path / "runs" / "a", scores={"sacreBLEU": 35.0})
    (directory / "evaluation" / "test" / "settings").write_text(f"average={average}\nbeam=5\n")
    content, _ = made(tmp_path, capsys)
    note = f"admin_6e6d: test uses average={average}, the published score last-epochs=10"
    assert (note in content["notes"]) == said


def test_the_validation_set_is_not_part_of_the_mean(tmp_path, capsys):
    directory = write_run(tmp_path / "runs" / "a")
    for name, bleu in (("newstest2013", 20.0), ("newstest2014", 26.0), ("valid", 90.0)):
        write_scores(directory, name, {"sacreBLEU": bleu})
    content, _ = made(tmp_path, capsys)
    assert [score["mean"] for score in content["groups"][0]["scores"]] == [20.0, 26.0, 90.0, 23.0]
