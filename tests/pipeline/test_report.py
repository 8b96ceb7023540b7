"""The leaderboard of made runs with known numbers: means and deviations by hand, tests as sacreBLEU's own command."""

import csv
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairseq_plugins.tools.cli.main import main
from fairseq_plugins.tools.pipeline import report
from fairseq_plugins.tools.pipeline.checkout import CONFIGS
from fairseq_plugins.tools.pipeline.leaderboard import Column
from fairseq_plugins.tools.pipeline.report import Report, as_text, make_report, report_on
from tests.pipeline.making import SIGNATURE, write_run, write_scores
from tests.refusals import refused

REFERENCES = [
    f"The {animal} sees a {thing} near the old\r house ."  # a carriage return is no end of a line
    for animal in ("cat", "dog", "fox", "owl", "cow")
    for thing in ("tree", "lamp", "door", "bird")
]
BLEU = Column("test", "sacreBLEU")


def translations(wrong: int, seed: int) -> list[str]:
    """The references with ``wrong`` of their words replaced."""
    chosen = random.Random(seed)
    lines = [line.split() for line in REFERENCES]
    for _ in range(wrong):
        line = chosen.choice(lines)
        line[chosen.randrange(len(line))] = "thing"
    return [" ".join(line) for line in lines]


def row_of(shown: Report, label: str) -> str:
    """The row of the table for a terminal."""
    return next(line for line in as_text(shown).splitlines() if line.startswith(label))


@pytest.fixture
def runs(tmp_path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def two_methods(runs) -> Path:
    """Admin with 3 seeds and Pre-LN with 2, each better or worse by a known amount."""
    for name, config, wrong, results in (
        ("a", "admin_6e6d", 4, ((3333, 37.0, 3.0), (1111, 35.0, 4.0), (2222, 36.0, 5.0))),
        ("b", "pre_ln_6e6d", 90, ((1111, 34.0, 4.0), (2222, 34.5, 4.0))),
    ):
        for seed, bleu, loss in results:
            write_run(
                runs / name / f"seed{seed}",
                seed=seed,
                config=f"iwslt14_de_en/{config}",
                valid={100: loss, **({200: 3.5} if name == "b" else {})},
                scores={"sacreBLEU": bleu, "tokenised BLEU": bleu + 1, "chrF": 50.0},
                texts=(translations(wrong, seed), REFERENCES),
                speeds=(1000.0, 3000.0, 2000.0),
            )
    return runs


def test_seeds_of_a_recipe_are_one_row_with_mean_and_deviation(two_methods):
    shown = make_report([two_methods])
    assert [column.metric for column in shown.columns] == ["sacreBLEU", "tokenised BLEU"]
    admin = shown.groups[0]
    assert (admin.label, [run.seed for run in admin.runs], admin.layers) == ("admin_6e6d", [1111, 2222, 3333], "6-6")
    # 35, 36, 37: mean 36, deviation sqrt((1 + 0 + 1) / 2) = 1; 34 and 34.5: deviation 0.5 / sqrt(2).
    assert admin.values(BLEU.score) == [35.0, 36.0, 37.0]
    cells = [cell.strip() for cell in row_of(shown, "admin_6e6d").split("  ")]
    expected = ["36,741,120", "4.000 ± 1.000", "36.00 ± 1.00", "37.00 ± 1.00", "2,000", "Tiny CPU"]
    assert [cell for cell in cells if cell in expected] == expected
    assert f"sacreBLEU: {SIGNATURE}" in as_text(shown)
    # Worse in its sentences and over the seeds.
    assert "34.25 ± 0.35 *†" in row_of(shown, "pre_ln_6e6d")
    assert {(test.system, test.test) for _, test in shown.tests} == {
        ("pre_ln_6e6d", "paired bootstrap"),
        ("pre_ln_6e6d", "Welch's t-test over runs"),
    }
    text = report.as_markdown(shown)
    assert "## Tests against admin_6e6d" in text
    assert text.count("| pre_ln_6e6d | test | ") == len(shown.tests)
    other = make_report([two_methods], "pre_ln_6e6d")
    assert (other.baseline, {test.system for _, test in other.tests}) == ("pre_ln_6e6d", {"admin_6e6d"})


def test_a_baseline_is_the_row_of_exactly_this_name(runs: Path) -> None:
    for place, rate in enumerate((["optimization.lr=[0.004]"], [], ["optimization.lr=[0.001]"])):
        write_run(runs / str(place), config="x/pre_ln_6e6d", changes=rate)
    assert make_report([runs], "pre_ln_6e6d").baseline == "pre_ln_6e6d"
    assert refused(make_report, [runs], "x/pre_ln_6e6d").startswith("--baseline x/pre_ln_6e6d: several rows: 'pre_ln")


TEXT = "scripts/prepare_iwslt14_de_en.sh"
SEEDS = (1111, 2222, 3333, 4444, 5555)
DIFFERENCES: dict[str, dict[str, Any]] = {
    "": {
        "overrides": [
            *("criterion.diagnostics_interval=10", "criterion.divergence_action=stop", "dataset.num_workers=4"),
            *("common.log_interval=10", "+common.wandb_project=x", "checkpoint.keep_last_epochs=12"),
        ],
        "criterion._name": "label_smoothed_cross_entropy_with_diagnostics",
        "criterion.diagnostics_interval": 10,
        "criterion.divergence_action": "stop",
        "dataset.num_workers": 4,
        "common.log_interval": 10,
        "common.wandb_project": "x",
        "checkpoint.keep_last_epochs": 12,
    },
    "text unknown": {"prepared_by": None},
    "other text": {"prepared_by": f"{TEXT} CHECKSUMS=/dev/null"},
    "1 setting": {"model.dropout": 0.1},
    "2 settings": {"overrides": ["model.word_dropout=0.1"], "model.word_dropout": 0.1, "optimization.clip_norm": 1.0},
    "3 settings": {
        "overrides": ["criterion.divergence_action=skip", "criterion.divergence_band=4"],
        "criterion._name": "cross_entropy_with_diagnostics",
        "criterion.divergence_action": "skip",
        "criterion.divergence_band": 4,
        "model.dropout": 0.1,
    },
    "amp": {"precision": "amp"},
    "400 tokens per update": {"tokens_per_update": 400},
    "24 of 100,000 updates": {"finished": {"num_updates": 24, "epochs": 1}},
    "200 of 100,000 updates": {"finished": {}},
    "seeds 4 of 5": {"seeds": SEEDS[1:]},
    "average none": {"average": "none"},
    "beam 4": {"beam": 4},
    "lenpen 0.6": {"lenpen": 0.6},
}
"""Cells in the place of the paper's number, by the only change of the recipe of Admin's Table 2.

The first run is recorded, watched and logged otherwise, which changes no loss.
"""


def test_the_paper_s_number_stands_beside_its_recipe_alone_and_what_differs_beside_others(runs):
    file = (CONFIGS / "iwslt14_de_en/admin_6e6d.yaml").read_text()
    wrong = {}
    for number, (said, changed) in enumerate(DIFFERENCES.items()):
        recipe = yaml.safe_load(file)
        for key in (key for key in changed if "." in key):
            group, _, name = key.partition(".")
            recipe[group][name] = changed[key]
        record = {"configuration": recipe, "prepared_by": TEXT, "tokens_per_update": 4096, "precision": "fp16"}
        record |= {key: value for key, value in changed.items() if key in (*record, "overrides")}
        search = {"average": "last-epochs=10", "beam": 5, "lenpen": 1, **changed}
        ended = changed.get("finished", {"num_updates": 500, "epochs": 90})
        place = runs / str(number)
        for seed in changed.get("seeds", SEEDS):
            directory = write_run(place / str(seed), seed=seed, finished=ended, scores={"sacreBLEU": 1}, record=record)
            lines = [f"{key}={search[key]}\n" for key in ("average", "beam", "lenpen")]
            (directory / "evaluation" / "test" / "settings").write_text("".join(lines))
        shown = make_report([place])
        header, row = report.table(shown)
        paper = row[header.index("paper")]
        remarks = [note for note in shown.notes if "differs from the published recipe, so its number is" in note]
        legend = "35.67±0.15 BLEU (tokenised) on test: Admin, Table 2" in as_text(shown)
        if (paper, len(remarks), legend) != (said or "35.67±0.15", bool(said), not said):
            wrong[said] = (paper, remarks, legend)
    assert wrong == {}


NAMES = {
    ("admin_6e6d model.dropout=0.1", "admin_6e6d model.dropout=0.2"): (
        {"changes": ["model.dropout=0.1", "dataset.max_tokens=100"]},
        {"changes": ["model.dropout=0.2", "dataset.max_tokens=100"]},
    ),
    ("admin_6e6d", "admin_6e6d PRECISION=fp16"): ({}, {"record": {"precision": "fp16"}}),
    ("iwslt14_de_en/admin_6e6d", "wmt14_en_de/admin_6e6d"): ({}, {"config": "wmt14_en_de/admin_6e6d"}),
    ("0", "1"): ({}, {"data": Path("elsewhere")}),
}
"""Names of two rows by their difference."""


def test_what_two_rows_do_not_share_is_in_their_names(runs, monkeypatch):
    for number, (names, settings) in enumerate(NAMES.items()):
        place = runs / str(number)
        for run, changed in enumerate(settings):
            write_run(place / str(run), **changed)
        monkeypatch.chdir(place)
        assert tuple(group.label for group in make_report([place]).groups) == names


def test_runs_of_an_edited_file_are_another_row(runs):
    """Logs and seeds make none."""
    for seed, (layers, interval, action) in enumerate(
        [(6, 10, "stop"), (12, 10, "stop"), (6, 20, ""), (6, 10, "skip")]
    ):
        configuration = {"model": {"encoder_layers": layers}, "common": {"seed": seed, "log_interval": interval}}
        configuration |= {"criterion": {"divergence_action": action}} if action else {}
        write_run(runs / str(seed), seed=seed, record={"configuration": configuration})
    shown = make_report([runs])
    first, second, _ = shown.groups
    assert [[run.seed for run in group.runs] for group in shown.groups] == [[0, 2], [1], [3]]
    same = f"{second.label}: not a seed of {first.label}, although the file has the same name"
    assert f"{same}: model.encoder_layers: 12, was 6" in shown.notes


def test_a_run_whose_settings_are_lost_leaves_the_names_of_the_others(runs):
    write_run(runs / "a", changes=["model.dropout=0.1"], record={"precision": "fp32"})
    lost = write_run(runs / "b") / "run.json"
    lost.write_text('{"config": "iwsl')
    shown = make_report([runs])
    first, second = (group.label for group in shown.groups)
    assert first == "admin_6e6d"
    assert second.endswith("runs/b")
    assert any(note.startswith(f"{lost}: not JSON") for note in shown.notes)


def test_what_cannot_be_compared_is_said_and_not_compared(runs):
    write_run(runs / "a", scores={"sacreBLEU": 1.0}, texts=(REFERENCES, REFERENCES))
    for number, (texts, why) in enumerate(
        (
            ((REFERENCES, [*REFERENCES[:-1], "Another ."]), "its references differ"),
            ((REFERENCES[:-1], REFERENCES), "a file or a sentence is missing"),
            (None, "a file or a sentence is missing"),
        )
    ):
        other = write_run(runs / f"b{number}", config="iwslt14_de_en/b", scores={"sacreBLEU": 1.0}, texts=texts)
        shown = make_report([runs / "a", other])
        assert shown.tests == ()
        assert f"{other}/evaluation/test: not compared with admin_6e6d: {why}" in shown.notes


def test_runs_without_a_result_are_rows_that_say_so(two_methods):
    failed = {"num_updates": 1, "epochs": 1, "outcome": "diverged", "reason": "Loss is NaN"}
    for seed, finished in ((1, failed), (2, {})):
        valid = {1: float("nan")} if seed == 1 else None
        place = two_methods / "c" / str(seed)
        write_run(place, config="iwslt14_de_en/post_ln_6e6d", seed=seed, valid=valid, finished=finished)
    damaged = two_methods / "a" / "seed1111" / "evaluation" / "test" / "score.json"
    damaged.write_text("{")
    (two_methods / "a/seed2222/evaluation/average.warning").write_text("the average spans updates 100 to 400\n")
    (two_methods / "a/seed3333/evaluation/test/settings").write_text("updates=5\n")
    shown = make_report([two_methods])
    assert (shown.groups[2].verdict, shown.groups[2].values(BLEU.score)) == ("1 diverged, 1 not finished", [])
    assert "36.50 ± 0.71 (2 of 3)" in row_of(shown, "admin_6e6d")
    remarks = ("/c/2: not finished: 200 of 500 updates", "/c/1: diverged: Loss is NaN", "/seed2222: the average")
    remarks += ("/seed3333: not evaluated: it was evaluated before its end (test after 5 of 500 updates)",)
    for remark in (*remarks, f"{damaged}: not JSON: "):
        assert [note for note in shown.notes if remark in note], remark


DEEP = "[" * 100_000 + "]" * 100_000
SCORE = '{"metrics": [{"name": "sacreBLEU", "value": %s}]}'
DAMAGES = (
    ("run.json", "[1]", "run.json: is [1], not an object"),
    ("run.json", None, "run.json: no such file"),
    ("train.log", None, "train.log: no such file"),
    ("finished", "half", "finished: not JSON: "),
    ("evaluation/test/score.json", None, "score.json: no such file"),
    ("evaluation/test/score.json", '{"metrics": [{"name": "x"}]}', "score.json: metrics[0].value is None, not a fini"),
    ("run.json", '{"devices": 5}', "run.json: devices is 5, not a list"),
    ("run.json", '{"configuration": {"optimization": {"max_update": "many"}}}', "run.json: configuration.optimizat"),
    ("run.json", f'{{"configuration": {DEEP}}}', "run.json: not JSON: maximum recursion depth exceeded"),
    ("finished", '{"num_updates": NaN, "epochs": 1}', "finished: num_updates is nan, not 0 to "),
    ("finished", '{"num_updates": null, "epochs": 1}', "finished: num_updates is None, not 0 to "),
    ("evaluation/test/score.json", SCORE % '"good"', "score.json: metrics[0].value is 'good', not a finite number"),
    ("evaluation/test/score.json", SCORE % DEEP, "score.json: not JSON: maximum recursion depth exceeded"),
    ("evaluation/test/settings", "beam=\xff", "settings: line 1: not UTF-8"),
    ("evaluation/average.warning", "\xff", ""),
    ("train.log", f'| INFO | train_inner | {{"loss": {DEEP}, "num_updates": "9"}}\n', ""),
    ("train.log", '| INFO | train_inner | {"loss": [1], "num_updates": "9"}\n', ""),
    ("train.log", '| INFO | train_inner | {"divergence_guard": 5, "update": "9"}\n', ""),
    ("checkpoints/recorder.jsonl", f'{{"update": 1, "applied": true, "values": {{"loss": {DEEP}}}}}\n', ""),
)
"""A file of a run, its content in Latin-1, or None for no file, and the remark on it."""


@pytest.mark.parametrize(("name", "content", "problem"), DAMAGES)
def test_one_damaged_run_ends_no_report_of_many(name, content, problem, runs, tmp_path, capsys):
    for seed in (1, 2):
        write_run(runs / str(seed), seed=seed, scores={"sacreBLEU": 34.0 + seed})
    bad = write_run(runs / "c", config="iwslt14_de_en/post_ln_6e6d", scores={"sacreBLEU": 30.0})
    (bad / name).parent.mkdir(exist_ok=True)
    (bad / name).unlink(missing_ok=True)
    if content is not None:
        (bad / name).write_bytes(content.encode("latin-1"))
    report_on([runs], tmp_path / "report")
    said = capsys.readouterr().out
    assert "35.50 ± 0.71" in said
    assert (f"{(bad / name).parent}/{problem}" in said) or not problem


def test_several_test_sets_have_a_mean_without_the_validation_set(runs):
    sets = {"post_ln": {"newstest2013": 20.0, "newstest2014": 26.0, "valid": 90.0}, "pre_ln": {"newstest2013": 21.0}}
    for method, scores in sets.items():
        directory = write_run(runs / method, config=f"iwslt14_de_en/{method}_6e6d")
        for test_set, bleu in scores.items():
            write_scores(directory, test_set, {"sacreBLEU": bleu})
    shown = make_report([runs])
    # Fewer test sets have no mean, because it would not be the same quantity.
    assert [[group.values(column.score) for column in shown.columns] for group in shown.groups] == [
        [[20.0], [26.0], [90.0], [23.0]],
        [[21.0], [], [], []],
    ]


def test_two_reports_of_the_same_runs_are_the_same_bytes_with_a_line_for_each_run(two_methods, tmp_path):
    files = []
    for name in ("one", "two"):
        assert main(["report", str(two_methods), "--output", str(tmp_path / name)]) == 0
        files.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert sorted(files[0]) == ["report.csv", "report.md"]
    assert files[0] == files[1]
    rows = list(csv.DictReader(str(files[0]["report.csv"], "utf-8").splitlines()))
    assert [(row["method"], row["seed"], float(row["test sacreBLEU"]), row["test chrF"]) for row in rows] == [
        ("admin_6e6d", "1111", 35.0, "50.0"),
        ("admin_6e6d", "2222", 36.0, "50.0"),
        ("admin_6e6d", "3333", 37.0, "50.0"),
        ("pre_ln_6e6d", "1111", 34.0, "50.0"),
        ("pre_ln_6e6d", "2222", 34.5, "50.0"),
    ]


def test_a_directory_whose_name_is_not_utf8_is_a_line(runs, tmp_path, capsys):
    write_run(runs / os.fsdecode(b"caf\xe9"))
    assert main(["report", str(runs), "--output", str(tmp_path / "report")]) == 2
    assert r"runs/caf\udce9" in capsys.readouterr().err


def test_what_a_run_says_is_no_command(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    devices = {"devices": ["=HYPERLINK(1)", "\x1b[2J<script>alert(1)</script>"]}
    for name in ("a", "b"):
        path = write_run(runs / name, record=devices, finished={}, config=f"x/{name}", valid={100: 4.0})
        line = json.dumps({"divergence_guard": "lost \x1b]0;x\x07 <script>", "update": 150, "ends": "lost \x1b <b>"})
        with (path / "train.log").open("a") as log:
            log.write(f"| INFO | fairseq_plugins.tools.observe.guard | {line}\n")
    assert main(["report", str(runs), "--output", str(tmp_path / "report")]) == 0
    said = capsys.readouterr().out
    texts = {name: (tmp_path / "report" / f"report.{name}").read_text() for name in ("md", "csv")}
    assert not [name for name, text in {**texts, "terminal": said}.items() if "\x1b" in text or "\x07" in text]
    assert "\\x1b[2J" in said
    assert "<script>" not in texts["md"].replace("\\<script>", "")
    assert "\\<script>" in texts["md"]
    [first, *_] = csv.DictReader(texts["csv"].splitlines())
    assert first["device"].startswith("'=HYPERLINK(1)")


def test_what_a_paper_reads_from_its_training_is_read_from_ours(runs, monkeypatch):
    monkeypatch.setattr("fairseq_plugins.tools.pipeline.leaderboard.differences", lambda *_: ())
    write_run(runs / "a", config="enwik8/rezero_12d", valid={100: 1.31, 200: 1.2, 300: 1.1})
    write_run(runs / "b", config="enwik8/pre_ln_12d", valid={100: 1.31, 200: 1.25})
    shown = make_report([runs])
    name = "updates to 1.2 bits per byte"
    assert shown.columns == (Column("valid", name),)
    assert [group.values(shown.columns[0].score) for group in shown.groups] == [[200.0], []]
    # Two tables print it, with different scores.
    assert f"8800 {name}; 1.17 bits per byte" in row_of(shown, "rezero_12d")
    assert row_of(shown, "pre_ln_12d").split()[7] == "17765"


def test_the_best_validation_is_shown_where_a_paper_draws_the_best(runs, monkeypatch):
    """B2T's figure 9; the loss at the end is higher. Its 6 layers are those of Table 1, whose number is printed."""
    monkeypatch.setattr("fairseq_plugins.tools.pipeline.leaderboard.differences", lambda *_: ())
    write_run(runs / "a", config="wmt16_en_de/b2t_6e6d", valid={100: 4.5, 200: 2.125, 300: 3.5})
    write_run(runs / "b", config="wmt16_en_de/b2t_36e36d", valid={100: 2.25, 200: float("nan")})
    header, first, second = report.table(make_report([runs]))
    shown = [header.index(name) for name in ("valid lowest negative log-likelihood", "paper")]
    assert [[row[at] for at in shown] for row in (first, second)] == [["2.125", "26.53"], ["2.250", "curve"]]


def test_what_was_not_decoded_or_scored_alike_is_said(two_methods):
    for place, beam in ((two_methods / "a", 5), (two_methods / "b" / "seed1111", 5), (two_methods / "b/seed2222", 4)):
        for score in place.rglob("score.json"):
            score.with_name("settings").write_text(f"average=last-epochs=10\nupdates={beam}00\nbeam={beam}\n")
    score.write_text(score.read_text().replace("case:mixed", "case:lc"))
    notes = [note for note in make_report([two_methods]).notes if "settings differ" in note]
    assert notes[0] == "test: settings differ: beam is 5 for admin_6e6d, pre_ln_6e6d; 4 for pre_ln_6e6d"
    signatures = [note.partition(": signature of ")[2].partition(" is ")[0] for note in notes[1:]]
    assert signatures == ["sacreBLEU", "tokenised BLEU", "chrF"]


def test_a_score_without_case_is_tested_without_case(runs):
    """Lower-cased chrF is equal for two outputs that differ only in case; there is no other score."""
    for name, change in (("a", str), ("b", str.upper)):
        directory = write_run(runs / name, config=f"iwslt14_de_en/{name}")
        texts = ([change(line) for line in translations(4, 1)], REFERENCES)
        write_scores(directory, "test", {"chrF": 50.0}, texts)
        score = directory / "evaluation" / "test" / "score.json"
        score.write_text(score.read_text().replace("case:mixed", "case:lc"))
    assert [test.difference for _, test in make_report([runs]).tests] == [0.0]
