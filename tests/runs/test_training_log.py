"""The numbers of a training log, and the verdict on it, by hand."""

from __future__ import annotations

import json

import pytest

from fairseq_plugins.runs.training_log import LogReader, TrainingLog, judge

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
