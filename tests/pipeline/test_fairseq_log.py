"""The numbers of a training log, by hand."""

from fairseq_plugins.tools.observe.guard.guarding import record as guard_record
from fairseq_plugins.tools.pipeline.fairseq_log import LogReader, TrainingLog
from fairseq_plugins.tools.unigram_entropy import DIVERGED
from tests.pipeline.making import train_line, valid_line


def log_of(*lines: str) -> TrainingLog:
    log = TrainingLog()
    for line in lines:
        log.take(line)
    return log


def test_numbers_of_a_log_in_which_a_resumed_training_counts_each_update_once():
    log = log_of(
        train_line(10, "9.6", "0"),
        train_line(20, "8.5", "900"),
        valid_line(20, valid_nll_loss="8.0"),
        train_line(10, "9.5", "0"),
        train_line(20, "8.5", "900"),
        train_line(30, "7.5", "1100"),
        valid_line(20, valid_nll_loss="7.9"),
        valid_line(30, valid_nll_loss="7.25"),
    )
    assert log.train_loss == {10: 9.5, 20: 8.5, 30: 7.5}
    assert log.valid_loss == {20: 7.9, 30: 7.25}
    assert (log.final_valid_loss, log.median_speed, log.updates, log.failure) == (7.25, 1000.0, 30, "")


def test_the_first_validation_set_counts_whatever_its_name():
    named = "{'valid_subset': 'dev,test', }\n"
    lines = [valid_line(7, valid_nll_loss="7.5").replace("valid", "dev")]
    lines += [valid_line(8, valid_nll_loss="8.5").replace("valid", "test")]
    assert log_of(named, *lines).valid_loss == {7: 7.5}
    assert log_of(*lines).valid_loss == {}
    # That of a language model has one loss.
    assert log_of(valid_line(30, valid_loss="1.25")).valid_loss == {30: 1.25}


def test_a_training_that_begins_anew_has_no_numbers_of_an_earlier_attempt():
    # The configuration stands before the line of fairseq that there is no checkpoint.
    fresh = "2026-01-01 00:00:00 | INFO | fairseq.trainer | No existing checkpoint found x.pt\n"
    begins = ("{'max_update': 20, }\n", fresh)
    log = log_of(train_line(10, "nan"), valid_line(30, valid_nll_loss="9.0"), *begins, train_line(10, "8.5"))
    assert log == log_of(*begins, train_line(10, "8.5"))
    assert (log.max_update, log.updates, log.failure) == (20, 10, "")


def test_a_loss_that_is_not_finite_is_seen_wherever_it_stands():
    for line in (
        train_line(20, "nan"),
        train_line(20, "inf"),
        valid_line(10, valid_nll_loss="nan"),
        "FloatingPointError: gradients are Nan/Inf\n",
        "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.\n",
    ):
        log = log_of(valid_line(10, valid_nll_loss="3.0"), line)
        assert (log.failure, log.divergence) == (DIVERGED, "loss not finite"), line


def test_what_the_guard_did_is_read_as_it_was_written():
    text = "loss 40 bits; first in a {b} (c); skip"
    log = log_of(f"2026-01-02 03:04:05 | INFO | fairseq_cli.train.guard | {guard_record(3, text)}\n")
    assert (log.updates, log.ended_by_guard, log.failure) == (2, "", "")
    log = log_of(guard_record(3, text), guard_record(7, text, ends="loss 40 bits"))
    # It logs before its update is made.
    assert (log.updates, log.ended_by_guard, log.failure) == (6, "loss 40 bits", DIVERGED)
    # The sentence of the terminal is for readers only; a training that goes on has not ended.
    assert not log_of(f"divergence guard: update 3: {text}; the training ends here\n").failure
    assert not log_of(guard_record(7, text, ends="loss 40 bits"), train_line(10, "9.5")).failure


def test_a_log_is_read_as_it_grows(tmp_path):
    path = tmp_path / "train.log"
    reader = LogReader(path)
    assert reader.poll().updates == 0
    line = train_line(40, "6.0")
    path.write_text(train_line(20, "7.0") + line[:30])
    assert reader.poll().updates == 20
    path.write_text(train_line(20, "7.0") + line)
    assert reader.poll().updates == 40
