"""From logs and translations to the report: nothing lost, nothing reordered, verdicts and cells by hand."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.demo.decoding import hypotheses_in_order, sacrebleu_score
from fairseq_plugins.demo.report import (
    Report,
    Result,
    as_json,
    draw_curves,
    markdown,
    markdown_table,
    notes,
    rows,
    sample_indices,
    text_table,
)
from fairseq_plugins.demo.training_log import LogReader, TrainingLog, judge
from fairseq_plugins.errors import UserError

PREFIX = "2026-01-02 03:04:05 | INFO |"


def train_line(updates: int, nll: str, wps: str = "1000") -> str:
    record = {"epoch": 1, "loss": "9", "nll_loss": nll, "wps": wps, "ups": "2", "num_updates": str(updates)}
    return f"{PREFIX} train_inner | {json.dumps(record)}\n"


def valid_line(updates: int, nll: str) -> str:
    record = {"epoch": 1, "valid_loss": "9", "valid_nll_loss": nll, "valid_num_updates": str(updates)}
    return f"{PREFIX} valid | {json.dumps(record)}\n"


def log_of(*lines: str) -> TrainingLog:
    log = TrainingLog()
    for line in lines:
        log.take(line)
    return log


def generated(index: int, text: str) -> list[str]:
    return [f"S-{index}\tein Haus\n", f"T-{index}\ta house\n", f"H-{index}\t-0.5\tnot this\n",
            f"D-{index}\t-0.5\t{text}\n", f"P-{index}\t-0.5 -0.5\n"]  # fmt: skip


@given(st.lists(st.text(st.characters(exclude_characters="\t\n\r", codec="utf-8")), min_size=1, max_size=30))
def test_translations_come_back_in_the_order_of_the_test_set(texts):
    order = list(range(len(texts)))
    random.Random(len(texts)).shuffle(order)
    lines = ["2026 | INFO | fairseq_cli.generate | D-ictionary\n"]
    for index in order:
        lines += generated(index, texts[index])
    assert hypotheses_in_order(lines, len(texts)) == texts


def test_an_empty_translation_is_kept():
    assert hypotheses_in_order([*generated(1, ""), *generated(0, "a")], 2) == ["a", ""]


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([0, 2], "2 translations for 3 test sentences; the first missing is 1"),
        ([0, 1, 2, 3], "4 translations for 3 test sentences"),
        ([0, 1, 1, 2], "sentence 1 was translated twice"),
        ([], "0 translations for 3 test sentences; the first missing is 0"),
    ],
)
def test_lost_and_surplus_translations_are_refused(indices, message):
    with pytest.raises(UserError, match=message):
        hypotheses_in_order([line for index in indices for line in generated(index, "x")], 3)


def test_perfect_translation_scores_100_and_the_signature_names_the_tokeniser():
    text = ["A man rides a bicycle .", "Two dogs run in the snow ."]
    score = sacrebleu_score(text, text)
    assert score.bleu == pytest.approx(100.0)
    assert "tok:13a" in score.signature


def test_unequal_counts_are_not_scored():
    with pytest.raises(UserError, match="1 translations but 2 references"):
        sacrebleu_score(["a"], ["a", "b"])


def test_numbers_of_a_log():
    log = log_of(
        f"{PREFIX} fairseq_cli.train | num. shared model params: 1,234,567 (num. trained: 1,234,567)\n",
        train_line(10, "9.5", "0"), train_line(20, "8.5", "900"), train_line(30, "7.5", "1100"), valid_line(30, "7.25"),
    )  # fmt: skip
    assert log.parameters == 1234567
    assert log.train_loss == {10: 9.5, 20: 8.5, 30: 7.5}
    assert log.valid_loss == {30: 7.25}
    assert log.final_valid_loss == 7.25
    assert log.median_speed == 1000.0
    assert log.updates == 30
    assert not log.not_finite


def test_a_resumed_training_counts_each_update_once():
    log = log_of(train_line(10, "9.5"), valid_line(10, "9.0"), train_line(10, "9.4"), valid_line(10, "8.9"))
    assert log.train_loss == {10: 9.4}
    assert log.valid_loss == {10: 8.9}


def test_a_log_is_read_as_it_grows(tmp_path):
    path = tmp_path / "train.log"
    reader = LogReader(path)
    assert reader.poll().updates == 0
    line = train_line(40, "6.0")
    path.write_text(train_line(20, "7.0") + line[:30])
    assert reader.poll().updates == 20
    path.write_text(train_line(20, "7.0") + line)
    assert reader.poll().updates == 40


@pytest.mark.parametrize(
    ("lines", "diverged"),
    [
        ([valid_line(10, "9.0"), valid_line(20, "3.0")], False),
        ([valid_line(10, "3.0"), valid_line(20, "9.0")], True),
        ([valid_line(10, "7.61")], True),  # the limit is 0.95 * 8 = 7.6 bits
        ([valid_line(10, "7.59")], False),
        ([valid_line(10, "3.0"), train_line(20, "nan")], True),
        ([valid_line(10, "3.0"), train_line(20, "inf")], True),
        ([valid_line(10, "nan")], True),
        ([valid_line(10, "3.0"), "FloatingPointError: gradients are Nan/Inf\n"], True),
        ([], False),
    ],
)
def test_verdict(lines, diverged):
    assert judge(log_of(*lines), unigram_entropy=8.0).diverged is diverged


def result_of(method: str, **numbers: object) -> Result:
    return replace(Result(method), **numbers)  # type: ignore[arg-type]


RESULTS = (
    result_of("post_ln", parameters=1234567, diverged=True, verdict="loss not finite", valid_loss=math.nan, bleu=0.04,
              tokens_per_second=987.6, train_curve={10: 9.0}, valid_curve={10: math.nan}, hypotheses=("x",) * 30),
    result_of("admin", parameters=1234999, diverged=False, valid_loss=2.345, bleu=33.25, tokens_per_second=12345.6,
              train_curve={10: 9.0, 20: 4.0}, valid_curve={20: 2.345}, signature="nrefs:1|x", hypotheses=("y|z",) * 30),
    result_of("rezero", failed="training of rezero ended with code 1; see /o/train.log", parameters=77),
)  # fmt: skip


@pytest.fixture
def report() -> Report:
    sources = tuple(f"Satz {n}" for n in range(30))
    references = tuple(f"sentence {n}" for n in range(30))
    return Report("title", RESULTS, sources, references, 8.125, {"seed": 1}, 60.0)


def test_cells():
    assert rows(RESULTS) == [
        ("method", "parameters", "diverged", "valid loss", "BLEU", "tokens/s"),
        ("post_ln", "1,234,567", "yes", "nan", "0.0", "988"),
        ("admin", "1,234,999", "no", "2.35", "33.2", "12,346"),
        ("rezero", "77", "failed", "-", "-", "-"),
    ]


def test_tables_hold_the_cells():
    lines = text_table(RESULTS).splitlines()
    assert lines[0].split() == ["method", "parameters", "diverged", "valid", "loss", "BLEU", "tokens/s"]
    assert lines[3].split() == ["admin", "1,234,999", "no", "2.35", "33.2", "12,346"]
    assert len({len(line) for line in lines}) == 1
    assert markdown_table([("a", "b"), ("1", "x|y")]) == "| a | b |\n| --- | ---: |\n| 1 | x\\|y |"


def test_samples_are_spread_over_the_test_set():
    assert sample_indices(1000) == [0, 100, 200, 300, 400, 500, 600, 700, 800, 900]
    assert sample_indices(3) == [0, 1, 2]


def test_markdown_shows_table_notes_samples_and_settings(report):
    text = markdown(report)
    assert "| admin | 1,234,999 | no | 2.35 | 33.2 | 12,346 |" in text
    assert "8.12 bits" in text or "8.13 bits" in text
    assert text.count("| source | Satz ") == 10
    assert "| admin | y\\|z |" in text
    assert "rezero failed: training of rezero ended with code 1; see /o/train.log" in text
    assert "post_ln diverged: loss not finite." in text
    assert "did not fail" not in text


def test_a_post_ln_that_trained_is_said_to_have_trained(report):
    trained = result_of("post_ln", diverged=False, valid_loss=3.0)
    assert "post_ln did not fail to train at this size and budget." in notes(replace(report, results=(trained,)))


def test_json_is_strict_and_has_the_numbers(report):
    content = json.loads(as_json(report), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert content["results"][1]["bleu"] == 33.25
    assert content["results"][1]["valid_curve"] == {"20": 2.345}
    assert content["results"][0]["valid_loss"] is None
    assert content["unigram_entropy"] == 8.125


def test_curves_are_a_png_with_a_line_for_each_method(report, tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    drawn = []
    monkeypatch.setattr(pyplot, "close", drawn.append)
    assert draw_curves(report, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    validation, training = drawn[0].axes
    assert [line.get_label() for line in training.lines] == ["post_ln", "admin", "unigram entropy"]
    assert list(validation.lines[1].get_ydata()) == [2.345]
    assert "bits" in validation.get_ylabel()
    assert training.get_xlabel() == "updates"
    looks = {(line.get_linestyle(), line.get_marker()) for line in training.lines}
    assert len(looks) == 3
    monkeypatch.undo()
    pyplot.close("all")
