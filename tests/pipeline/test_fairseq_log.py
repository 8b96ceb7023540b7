"""The numbers of a training log, and the verdict on it, by hand."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.observe.guard.guarding import record as guard_record
from fairseq_plugins.outcomes import DIVERGED, FAILED_TO_TRAIN
from fairseq_plugins.pipeline.fairseq_log import LogReader, TrainingLog
from fairseq_plugins.pipeline.verdicts import OK, UNKNOWN, judge, unigram_entropy

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


def test_numbers_of_a_log():
    log = log_of(
        f"{PREFIX} fairseq_cli.train | num. shared model params: 1,234,567 (num. trained: 1,234,567)\n",
        train_line(10, "9.5", "0"),
        train_line(20, "8.5", "900"),
        train_line(30, "7.5", "1100"),
        valid_line(30, "7.25"),
    )
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


def test_updates_before_one_that_the_guard_speaks_of_were_made():
    said = guard_record(3, "loss 40 bits; stop", ends="loss 40 bits") + "\n"
    assert log_of(f"{PREFIX} fairseq_cli.train | {said}").updates == 2
    assert log_of(said, train_line(10, "9.5")).updates == 10


def test_what_the_guard_did_is_read_as_it_was_written():
    text = "loss 40 bits; first in a {b} (c); skip"
    log = log_of(f"{PREFIX} fairseq_cli.train.guard | {guard_record(3, text)}\n")
    assert (log.guarded, log.ended_by_guard, log.failure) == ({3: text}, "", "")
    log = log_of(guard_record(3, text), guard_record(7, text, ends="loss 40 bits"))
    assert (log.guarded, log.ended_by_guard, log.failure) == ({3: text, 7: text}, "loss 40 bits", DIVERGED)
    # The sentence of the terminal is for readers only.
    assert not log_of(f"divergence guard: update 3: {text}; the training ends here\n").guarded


def test_a_log_is_read_as_it_grows(tmp_path):
    path = tmp_path / "train.log"
    reader = LogReader(path)
    assert reader.poll().updates == 0
    line = train_line(40, "6.0")
    path.write_text(train_line(20, "7.0") + line[:30])
    assert reader.poll().updates == 20
    path.write_text(train_line(20, "7.0") + line)
    assert reader.poll().updates == 40


def test_verdict():
    for lines, outcome in (
        ([valid_line(10, "9.0"), valid_line(20, "3.0")], OK),
        ([valid_line(10, "3.0"), valid_line(20, "9.0")], FAILED_TO_TRAIN),
        ([valid_line(10, "7.61")], FAILED_TO_TRAIN),  # the limit is 0.95 * 8 = 7.6 bits
        ([valid_line(10, "7.59")], OK),
        ([valid_line(10, "3.0"), train_line(20, "nan")], DIVERGED),
        ([valid_line(10, "3.0"), train_line(20, "inf")], DIVERGED),
        ([valid_line(10, "nan")], DIVERGED),
        ([valid_line(10, "3.0"), "FloatingPointError: gradients are Nan/Inf\n"], DIVERGED),
        ([], UNKNOWN),
    ):
        verdict = judge(log_of(*lines), unigram_entropy=8.0)
        assert verdict.outcome == outcome, lines
        assert verdict.diverged is (outcome in (DIVERGED, FAILED_TO_TRAIN))
    assert judge(log_of(valid_line(10, "3.0")), unigram_entropy=None).outcome == UNKNOWN


def test_the_loss_of_a_language_model_has_one_name():
    record = {"epoch": 1, "valid_loss": "1.25", "valid_num_updates": "30"}
    assert log_of(f"{PREFIX} valid | {json.dumps(record)}\n").valid_loss == {30: 1.25}


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=8), min_size=1, max_size=20))
def test_unigram_entropy_is_the_mean_surprise(lines):
    tokens = [token for line in lines for token in [*line, "</s>"]]
    counts = Counter(tokens)
    surprise = sum(-math.log2(counts[token] / len(tokens)) for token in tokens) / len(tokens)
    assert unigram_entropy(" ".join(line) + "\n" for line in lines) == pytest.approx(surprise, abs=1e-9)


def test_unigram_entropy_closed_form():
    # Seven tokens once each and one end of sentence: eight equally frequent symbols are three bits.
    assert unigram_entropy(["a b c d e f g\n"]) == pytest.approx(3.0)
