"""What each action does to weights, learning rates and the updates that follow."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from fairseq_plugins.errors import Diverged, UserError
from fairseq_plugins.recorder import read
from tests import toy
from tests.guard.common import checkpoint, differing, reports
from tests.guard.conftest import Faults, Training

SKIP, LOWER = ("--divergence-action", "skip"), ("--divergence-action", "lower-lr")


def rates(run: Path) -> dict[int, float]:
    """Learning rate of each update that was made."""
    return {entry.update: entry.values["learning_rate"] for entry in read(run / "recorder.jsonl") if entry.applied}


def test_skip_is_a_training_without_that_batch(
    training: Training, faults: Faults, said: Callable[[], list[str]]
) -> None:
    faults.losses(3)
    guarded = training.run("guarded", *SKIP, updates=5)
    faults.losses()
    faults.left_out = {3}
    without = training.run("without", updates=5)
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


SCHEDULES = {
    "inverse_sqrt": ("--warmup-updates", "4"),
    "inverse_sqrt_without_warmup": (),
    "fixed": ("--lr-shrink", "0.5", "--force-anneal", "2", "--warmup-updates", "2"),
    "polynomial_decay": ("--total-num-update", "20", "--warmup-updates", "2"),
    "cosine": ("--warmup-updates", "2"),
    "tri_stage": ("--warmup-steps", "2", "--hold-steps", "3", "--decay-steps", "8"),
    # No epoch is nine tenths better than the one before it.
    "reduce_lr_on_plateau": ("--lr-patience", "0", "--lr-threshold", "0.9"),
}


@pytest.fixture
def _no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every schedule knows the toy recipe's."""
    at = toy.RECIPE.index("--warmup-updates")
    monkeypatch.setattr(toy, "RECIPE", toy.RECIPE[:at] + toy.RECIPE[at + 2 :])


@pytest.mark.usefixtures("_no_warm_up")
@pytest.mark.parametrize("name", SCHEDULES)
def test_lower_lr_is_half_of_the_schedule(training: Training, faults: Faults, name: str) -> None:
    flags = ["--lr-scheduler", name, *SCHEDULES[name]]
    by_epoch = name == "reduce_lr_on_plateau"
    # An epoch has ten updates; this schedule moves at the end of the second.
    updates = 22 if by_epoch else 13
    faults.losses(3)
    lowered = rates(training.run("lowered", *flags, *LOWER, updates=updates, validate=by_epoch))
    faults.losses()
    faults.left_out = {3}
    scheduled = rates(training.run("scheduled", *flags, updates=updates, validate=by_epoch))
    assert len(scheduled) == updates
    assert len(set(scheduled.values())) > 1
    assert lowered == {update: rate * (0.5 if update > 2 else 1.0) for update, rate in scheduled.items()}


@pytest.mark.usefixtures("_no_warm_up")
@pytest.mark.parametrize("name", ["inverse_sqrt", "reduce_lr_on_plateau"])
def test_a_resumed_training_keeps_the_lowered_rate(training: Training, faults: Faults, name: str) -> None:
    flags = ["--lr-scheduler", name, *SCHEDULES[name], *LOWER]
    by_epoch = name == "reduce_lr_on_plateau"
    updates = 22 if by_epoch else 8
    faults.losses(3)
    whole = training.run("whole", *flags, updates=updates, validate=by_epoch)
    training.run("parts", *flags, updates=5, validate=by_epoch)
    faults.losses()
    parts = training.run("parts", *flags, updates=updates, validate=by_epoch)
    assert rates(parts) == rates(whole)
    assert differing(checkpoint(parts), checkpoint(whole)) == []


def test_resumed_without_a_guard_the_rate_is_the_schedules_and_a_line_says_so(
    training: Training, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    faults.losses(3)
    training.run("run", *LOWER, updates=4)
    faults.losses()
    run = training.run("run", updates=6)
    assert rates(run)[6] == pytest.approx(0.005 * math.sqrt(4 / 5))
    assert any("had lowered the learning rate of this training to 1/2 of" in line for line in caplog.messages)


def test_weights_that_are_off_get_their_updates_at_ever_lower_rates(
    training: Training, faults: Faults, said: Callable[[], list[str]]
) -> None:
    """The first is dropped, as the batch may be to blame; then they must move, or nothing could ever mend them."""
    faults.before[36] = lambda trainer: trainer.optimizer.set_lr(5.0)
    with pytest.raises(Diverged, match="^diverged at update 39: loss "):
        training.run("run", *LOWER, "--divergence-patience", "4", updates=45)
    assert [line.split("; lower-lr")[1].split("; report")[0] for line in said()] == [
        ": the update is dropped, the learning rate is 1/2 of the schedule's from here on",
        ": the learning rate is 1/4 of the schedule's from here on, this update included",
        ": the learning rate is 1/8 of the schedule's from here on, this update included",
        ", then stop: 4 abnormal updates in a row; the training ends here",
    ]
    assert rates(training.directory / "run")[38] == pytest.approx(0.005 * math.sqrt(4 / 37) / 8)


def test_fp32_ends_in_stop_where_precision_is_full_already(training: Training, faults: Faults) -> None:
    faults.losses(2)
    with pytest.raises(Diverged):
        training.run("run", "--divergence-action", "fp32")
    (report,) = reports(training.directory / "run")
    assert "fp32, then stop: it is in full precision already" in report


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            ("--divergence-action", "sotp"),
            "--divergence-action sotp: unknown action 'sotp' (did you mean 'stop'?); "
            "legal values: fp32, lower-lr, skip, stop",
        ),
        (("--divergence-action", "stop", "--divergence-band", "0"), "--divergence-band 0.0: it must be at least 1"),
        (("--divergence-patience", "0"), "--divergence-patience 0: it must be at least 1"),
        (("--divergence-plateau", "-1"), "--divergence-plateau -1: it must be at least 0"),
        (
            ("--divergence-action", "stop", "--use-bmuf"),
            "--divergence-action needs the gradients of all processes in each update: "
            "it does not work with --use-bmuf or --ddp-backend slowmo",
        ),
        (
            ("--divergence-action", "fp32", "--zero-sharding", "os"),
            "--divergence-action fp32 cannot gather an optimizer that --zero-sharding has spread",
        ),
    ],
)
def test_bad_settings(training: Training, flags: tuple[str, ...], problem: str) -> None:
    with pytest.raises(UserError) as caught:
        training.run("run", *flags)
    assert caught.value.problems == (problem,)


def test_without_the_flag_there_is_no_guard(training: Training, faults: Faults) -> None:
    faults.losses(2)
    with pytest.raises(FloatingPointError, match="gradients are Nan/Inf"):
        training.run("run")
    assert not (training.directory / "run" / "divergence").exists()


def test_fairseqs_meters_are_left_as_they_were(training: Training, faults: Faults) -> None:
    """What an update has entered is left again, also where it is dropped."""
    from fairseq.logging import metrics

    faults.losses(2)
    training.run("run", *SKIP)
    assert {name: count for name, count in metrics._active_aggregators_cnt.items() if count} == {"default": 1}
