"""From results to the report: cells by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from fairseq_plugins.demo.decoding import sacrebleu_score
from fairseq_plugins.demo.report import (
    Report,
    Result,
    as_json,
    draw_curves,
    last_lines,
    markdown,
    notes,
    rows,
    sample_indices,
    text_table,
)
from fairseq_plugins.errors import UserError


def test_perfect_translation_scores_100_and_the_signature_names_the_tokeniser():
    text = ["A man rides a bicycle .", "Two dogs run in the snow ."]
    score = sacrebleu_score(text, text)
    assert score.bleu == pytest.approx(100.0)
    assert "tok:13a" in score.signature


def test_unequal_counts_are_not_scored():
    with pytest.raises(UserError, match="1 translations but 2 references"):
        sacrebleu_score(["a"], ["a", "b"])


def result_of(method: str, **numbers: object) -> Result:
    return replace(Result(method), **numbers)  # type: ignore[arg-type]


RESULTS = (
    result_of(
        "post_ln",
        parameters=1234567,
        diverged=True,
        verdict="loss not finite",
        valid_loss=math.nan,
        bleu=0.04,
        tokens_per_second=987.6,
        train_curve={10: 9.0},
        valid_curve={10: math.nan},
        hypotheses=("x",) * 30,
    ),
    result_of(
        "admin",
        parameters=1234999,
        diverged=False,
        valid_loss=2.345,
        bleu=33.25,
        tokens_per_second=12345.6,
        train_curve={10: 9.0, 20: 4.0},
        valid_curve={20: 2.345},
        signature="nrefs:1|x",
        hypotheses=("y|z",) * 30,
    ),
    result_of("rezero", failed="training of rezero ended with code 1; see /o/train.log", parameters=77),
)


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


def test_the_last_three_lines_say_what_was_seen_where_it_is_and_what_to_type_next(report):
    assert last_lines(report, "out/report.md; 7:00", own_text=False) == [
        "Seen: post_ln, rezero failed to train; BLEU: admin 33.2, post_ln 0.0.",
        "Files: out/report.md; 7:00",
        "Next: with your own text: make demo DATA=DIR SRC=de TGT=en; DIR holds train.de, train.en, valid.de, ...",
    ]
    trained = replace(report, results=RESULTS[1:2])
    seen, _, following = last_lines(trained, "out", own_text=True)
    assert seen == "Seen: every method trained; BLEU: admin 33.2."
    assert "From raw text to a score" in following


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
