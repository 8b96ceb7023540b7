"""What each action does to weights, learning rates and the updates that follow."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fairseq.trainer import Trainer

from fairseq_plugins.errors import Diverged, UserError
from fairseq_plugins.observe.guard import report as report_module
from fairseq_plugins.observe.guard.guarding import guard_of
from fairseq_plugins.observe.recorder import read
from tests.observe.guard.conftest import Faults, Training, checkpoint, differing, reports

STOP, SKIP = ("--divergence-action", "stop"), ("--divergence-action", "skip")


@pytest.mark.parametrize(
    "precision",
    [(), *(pytest.param((flag,), marks=pytest.mark.slow) for flag in ("--bf16", "--memory-efficient-bf16"))],
)
def test_skip_is_a_training_without_that_batch(
    training: Training, faults: Faults, said: Callable[[], list[str]], precision: tuple[str, ...]
) -> None:
    faults.losses(3)
    guarded = training.run("guarded", *SKIP, *precision, updates=5)
    faults.losses()
    faults.left_out = {3}
    without = training.run("without", *precision, updates=5)
    made = [entry for entry in read(guarded / "recorder.jsonl") if entry.applied]
    assert made == read(without / "recorder.jsonl")
    assert differing(checkpoint(guarded), checkpoint(without)) == []
    applied = [(entry.update, entry.applied) for entry in read(guarded / "recorder.jsonl")]
    assert applied == [(1, True), (2, True), (3, False), (3, True), (4, True), (5, True)]
    (line,) = said()
    assert "; skip: the update is dropped (1 in a row, 5 end it)" in line


def test_skip_ends_in_stop(training: Training, faults: Faults, said: Callable[[], list[str]]) -> None:
    faults.losses(3, 5, 6, 7)
    with pytest.raises(Diverged, match="^diverged at update 4: the loss is not a number"):
        training.run("run", *SKIP, "--divergence-patience", "3", updates=9)
    assert [line.split("; skip")[1].split(";")[0] for line in said()] == [
        ": the update is dropped (1 in a row, 3 end it)",
        ": the update is dropped (1 in a row, 3 end it)",
        ": the update is dropped (2 in a row, 3 end it)",
        ", then stop: 3 abnormal updates in a row",
    ]
    # One report for each stretch; the second tells all that was done.
    first, second = reports(training.directory / "run")
    assert (first.count("dropped"), second.count("dropped")) == (1, 2)


def long_gradients(monkeypatch: pytest.MonkeyPatch, updates: set[int], by: float = 1e3) -> None:
    """Lengthen the gradient of some updates, and leave their losses as they are."""
    clip = Trainer.clip_grad_norm

    def lengthened(trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
        if trainer.get_num_updates() + 1 in updates:
            trainer.optimizer.multiply_grads(by)
        return clip(trainer, *args, **kwargs)

    monkeypatch.setattr(Trainer, "clip_grad_norm", lengthened)


@pytest.mark.parametrize(
    ("interval", "precision"),
    [
        ("1", ()),
        pytest.param("7", (), marks=pytest.mark.slow),
        pytest.param("7", ("--bf16",), marks=pytest.mark.slow),
    ],
)
def test_a_long_gradient_alone_is_noted_and_made(
    training: Training,
    monkeypatch: pytest.MonkeyPatch,
    said: Callable[[], list[str]],
    interval: str,
    precision: tuple[str, ...],
) -> None:
    """With the loss inside of its band the training is bit for bit the one without a guard."""
    long_gradients(monkeypatch, {33})
    more = ("--diagnostics-interval", interval, *precision)
    guarded = training.run("guarded", *STOP, *more, updates=36)
    (line,) = said()
    assert re.match(
        r"update 33: gradient norm \d+, the band ends at [\d.]+ \(\d+ deviations\); learning rate 0\.\d+; first in ",
        line,
    )
    assert "; noted: the loss is within its band, so the update is kept (1 in a row, stop at 5)" in line
    without = training.run("without", *more, updates=36)
    assert differing(checkpoint(guarded), checkpoint(without)) == []
    # The update that is spoken of is in the record, whatever the interval.
    seen, expected = ({one.update: one for one in read(run / "recorder.jsonl")} for run in (guarded, without))
    assert seen[33].applied
    assert seen[33].values["gradient_norm"] > 100 * seen[max(seen)].values["gradient_norm"]
    assert {**seen, 33: expected.get(33, seen[33])} == {**expected, 33: seen[33]}
    (report,) = reports(guarded)
    assert "- **Done**: update 33: noted: " in report
    assert "`--clip-norm` bounds what one such gradient can do" in report
    assert not (guarded / "divergence" / "last.pt").exists()


@pytest.mark.slow
def test_skip_drops_a_long_gradient_at_once(
    training: Training, monkeypatch: pytest.MonkeyPatch, said: Callable[[], list[str]]
) -> None:
    long_gradients(monkeypatch, {33, 34})
    with pytest.raises(Diverged, match="^diverged at update 33: gradient norm "):
        training.run("skip", *SKIP, "--divergence-patience", "2", updates=36)
    assert "; skip: the update is dropped (1 in a row, 2 end it); " in said()[0]


def test_a_report_that_cannot_be_written_is_not_named(
    training: Training, faults: Faults, monkeypatch: pytest.MonkeyPatch, said: Callable[[], list[str]]
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report_module, "write_whole", full)
    faults.losses(2)
    training.run("run", *SKIP, updates=3)
    failed, dropped = said()
    assert failed.startswith("no report: ")
    assert failed.endswith("divergence: No space left on device")
    assert dropped.endswith("; skip: the update is dropped (1 in a row, 5 end it)")


def test_long_gradients_in_a_row_end_in_stop(
    training: Training, monkeypatch: pytest.MonkeyPatch, said: Callable[[], list[str]]
) -> None:
    long_gradients(monkeypatch, {32, *range(34, 40)})
    with pytest.raises(Diverged, match="^diverged at update 36: gradient norm "):
        training.run("run", *STOP, "--divergence-patience", "3", updates=45)
    assert [line.split("; ")[-2 if "report" in line else -1].split(",")[0] for line in said()] == [
        "noted: the loss is within its band",
        "noted: the loss is within its band",
        "noted: the loss is within its band",
        "the training ends here",
    ]
    first, second = reports(training.directory / "run")
    assert (first.count("noted: "), second.count("noted: ")) == (1, 2)
    assert "update 36: stop: 3 abnormal updates in a row; the training ends here" in second


def test_a_long_gradient_after_which_the_loss_is_none_names_what_broke(
    training: Training, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_gradients(monkeypatch, {33})
    faults.weight(34, "decoder.layers.1.fc1.weight", math.inf)
    with pytest.raises(
        Diverged,
        match=r"^diverged at update 34: the loss is not a number; learning rate \S+; first in decoder.layers.1",
    ):
        training.run("run", *STOP, updates=36)
    assert len(reports(training.directory / "run")) == 2


def test_a_run_that_is_ended_has_a_report_however_many_there_were(
    training: Training, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_module, "MOST_REPORTS", 1)
    faults.losses(2, 4, 6, 7)
    with pytest.raises(Diverged, match=r"update-4\.md$"):
        training.run("run", *SKIP, "--divergence-patience", "2", updates=9)
    first, last = reports(training.directory / "run")
    assert "# Abnormal update: update 2\n" in first
    assert ", then stop: 2 abnormal updates in a row" in last


def test_the_training_as_it_was_is_saved_and_can_go_on(training: Training, faults: Faults) -> None:
    faults.losses(4)
    with pytest.raises(Diverged):
        training.run("run", "--divergence-action", "stop", updates=6)
    faults.losses()
    saved = training.directory / "run" / "divergence" / "last.pt"
    assert checkpoint(saved.parent, "last.pt")["optimizer_history"][-1]["num_updates"] == 3
    on = training.run("on", "--restore-file", str(saved), updates=6)
    faults.left_out = {4}
    without = training.run("without", updates=6)
    assert differing(checkpoint(on), checkpoint(without)) == []


def test_a_resumed_training_has_the_bands_of_the_whole(training: Training, faults: Faults) -> None:
    training.run("parts", *SKIP, updates=3)
    training.run("parts", *SKIP, updates=5)
    training.run("whole", *SKIP, updates=5)
    _, resumed, whole = (guard_of(trainer).signals for trainer in faults.trainers)
    assert resumed.state() == whole.state()
    assert resumed.loss.count == 5
    training.run("parts", *SKIP, "--reset-optimizer", "--reset-dataloader", "--reset-meters", updates=2)
    assert guard_of(faults.trainers[-1]).signals.loss.count == 2


def test_another_precision_than_that_of_the_checkpoint_is_one_line(training: Training) -> None:
    training.run("run", updates=2)
    with pytest.raises(UserError, match="trained in another precision or with another optimizer: use the flags"):
        training.run("run", "--bf16", updates=4)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            ("--divergence-action", "sotp"),
            "--divergence-action sotp: unknown action 'sotp' (did you mean 'stop'?); legal values: skip, stop",
        ),
        (("--divergence-action", "stop", "--divergence-band", "0"), "--divergence-band 0.0: it must be at least 1"),
        (("--divergence-patience", "0"), "--divergence-patience 0: it must be at least 1"),
        (("--divergence-plateau", "-1"), "--divergence-plateau -1: it must be at least 0"),
        (
            ("--divergence-action", "stop", "--use-bmuf"),
            "--divergence-action needs the gradients of all processes in each update: "
            "it does not work with --use-bmuf or --ddp-backend slowmo",
        ),
    ],
)
def test_bad_settings(training: Training, flags: tuple[str, ...], problem: str) -> None:
    with pytest.raises(UserError) as caught:
        training.run("run", *flags)
    assert caught.value.problems == (problem,)


def test_without_the_flag_there_is_no_guard(training: Training, faults: Faults) -> None:
    faults.losses(2)
    with pytest.raises(Diverged, match="the gradient norm is not a number"):
        training.run("run")
    assert not list((training.directory / "run" / "divergence").glob("*.md"))


def test_fairseqs_meters_are_left_as_they_were(training: Training, faults: Faults) -> None:
    """What an update has entered is left again, also where it is dropped."""
    from fairseq.logging import metrics

    faults.losses(2)
    training.run("run", *SKIP)
    assert {name: count for name, count in metrics._active_aggregators_cnt.items() if count} == {"default": 1}
