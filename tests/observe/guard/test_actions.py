"""What each action does to weights, learning rates and the updates that follow."""

from __future__ import annotations

import dataclasses
import math
import re
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.optim.adam import FairseqAdam
from fairseq.optim.lr_scheduler import LR_SCHEDULER_DATACLASS_REGISTRY, LR_SCHEDULER_REGISTRY
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from fairseq_plugins.errors import Diverged, UserError
from fairseq_plugins.observe.guard import report as report_module
from fairseq_plugins.observe.guard.guarding import ATTRIBUTE, guard_of
from fairseq_plugins.observe.guard.rates import Rates
from fairseq_plugins.observe.recorder import read
from tests import toy
from tests.observe.guard.common import checkpoint, differing, reports
from tests.observe.guard.conftest import Faults, Training

SKIP, LOWER = ("--divergence-action", "skip"), ("--divergence-action", "lower-lr")


def rates(run: Path) -> dict[int, float]:
    """Learning rate of each update that was made."""
    return {entry.update: entry.values["learning_rate"] for entry in read(run / "recorder.jsonl") if entry.applied}


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


STOP = ("--divergence-action", "stop")


def long_gradients(monkeypatch: pytest.MonkeyPatch, updates: set[int], by: float = 1e3) -> None:
    """Lengthen the gradient of some updates, and leave their losses as they are."""
    clip = Trainer.clip_grad_norm

    def lengthened(trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
        if trainer.get_num_updates() + 1 in updates:
            trainer.optimizer.multiply_grads(by)
        return clip(trainer, *args, **kwargs)

    monkeypatch.setattr(Trainer, "clip_grad_norm", lengthened)


FP32 = ("--divergence-action", "fp32", "--bf16")


@pytest.mark.parametrize(
    ("interval", "flags"),
    [
        ("1", STOP),
        pytest.param("1", LOWER, marks=pytest.mark.slow),
        pytest.param("1", FP32, marks=pytest.mark.slow),
        pytest.param("7", STOP, marks=pytest.mark.slow),
        pytest.param("7", LOWER, marks=pytest.mark.slow),
        pytest.param("7", FP32, marks=pytest.mark.slow),
    ],
)
def test_a_long_gradient_alone_is_noted_and_made(
    training: Training,
    monkeypatch: pytest.MonkeyPatch,
    said: Callable[[], list[str]],
    flags: tuple[str, ...],
    interval: str,
) -> None:
    """With the loss inside of its band the training is bit for bit the one without a guard."""
    long_gradients(monkeypatch, {33})
    more = ("--diagnostics-interval", interval)
    guarded = training.run("guarded", *flags, *more, updates=36)
    (line,) = said()
    assert re.match(
        r"update 33: gradient norm \d+, the band ends at [\d.]+ \(\d+ deviations\); learning rate 0\.\d+; first in ",
        line,
    )
    assert f"; noted: the loss is within its band, so the update is kept (1 in a row, {flags[1]} at " in line
    without = training.run("without", *flags[2:], *more, updates=36)
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
def test_skip_drops_a_long_gradient_at_once_and_lower_lr_acts_on_the_second(
    training: Training, monkeypatch: pytest.MonkeyPatch, said: Callable[[], list[str]]
) -> None:
    long_gradients(monkeypatch, {33, 34})
    with pytest.raises(Diverged, match="^diverged at update 33: gradient norm "):
        training.run("skip", *SKIP, "--divergence-patience", "2", updates=36)
    assert "; skip: the update is dropped (1 in a row, 2 end it); " in said()[0]
    lowered = training.run("lower", *LOWER, updates=36)
    scheduled = {update: 0.005 * math.sqrt(4 / max(update - 1, 4)) for update in range(31, 37)}
    found = rates(lowered)
    # The second is made at half the rate, and so are those after it.
    assert [found[update] / scheduled[update] for update in scheduled] == pytest.approx([1, 1, 1, 0.5, 0.5, 0.5])


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


SCHEDULES = {
    "inverse_sqrt": {"warmup_updates": 4},
    "inverse_sqrt_without_warmup": {},
    "fixed": {"force_anneal": 2, "lr_shrink": 0.5, "warmup_updates": 2},
    "polynomial_decay": {"total_num_update": 20, "warmup_updates": 2, "power": 2.0},
    "cosine": {"max_update": 30, "warmup_updates": 2},
    "tri_stage": {"warmup_steps": 2, "hold_steps": 3, "decay_steps": 8},
    "triangular": {"max_lr": 0.01, "lr_period_updates": 8},
    "manual": {"epoch2lr": "{'2': 0.003}", "update2lr": "{'5': 0.002}"},
    "step": {"lr_deacy_period": 3, "min_lr": 1e-4},
    "reduce_lr_on_plateau": {
        "lr_patience": 0,
        "lr_threshold": 0.9,
        "lr_shrink": 0.1,
        "maximize_best_checkpoint_metric": False,
    },
    "pass_through": {},
}


def trainer_with(name: str) -> Trainer:
    """As much of a trainer as moves a schedule."""

    def scheduler(name: str) -> Any:
        settings = {"lr": [0.005], "max_update": 40, **SCHEDULES[name]}
        known = LR_SCHEDULER_DATACLASS_REGISTRY.get(name)
        if known is None:
            return LR_SCHEDULER_REGISTRY[name](Namespace(**settings), optimizer)
        fields = {field.name for field in dataclasses.fields(known)}
        given = {key: value for key, value in settings.items() if key in fields}
        return LR_SCHEDULER_REGISTRY[name](OmegaConf.merge(OmegaConf.structured(known), given), optimizer)

    adam = {"lr": [0.005], "adam_betas": "(0.9, 0.999)", "adam_eps": 1e-8, "weight_decay": 0.0, "tpu": False}
    adam |= {"use_old_adam": True, "fp16_adam_stats": False}
    trainer, optimizer = Trainer.__new__(Trainer), FairseqAdam(OmegaConf.create(adam), [torch.ones(1)])
    if name == "pass_through":
        optimizer._lr_scheduler = scheduler("inverse_sqrt")
        type(optimizer).lr_scheduler = property(lambda self: self._lr_scheduler)
    trainer._optimizer, trainer._lr_scheduler = optimizer, scheduler(name)
    trainer._num_updates, trainer.quantizer = 0, None
    setattr(trainer, ATTRIBUTE, SimpleNamespace(rates=Rates()))
    return trainer


def stepped(name: str, halved_after: int) -> list[float]:
    """Rates of a schedule over 30 updates, ten an epoch, with the calls that a training makes of it."""
    trainer, found = trainer_with(name), []
    for update in range(1, 31):
        if update % 10 == 1:
            trainer.lr_step_begin_epoch(update // 10 + 1)
        found.append(trainer.get_lr())
        if update == halved_after:
            guard_of(trainer).rates.halve(trainer.optimizer)
        trainer.set_num_updates(update)
        if update % 10 == 0:
            trainer.lr_step(update // 10, 1.0)
    return found


@pytest.mark.parametrize("name", SCHEDULES)
def test_lower_lr_is_half_of_the_schedule(name: str) -> None:
    scheduled = stepped(name, halved_after=0)
    assert len(set(scheduled)) > 1
    assert stepped(name, halved_after=3) == [
        rate * (0.5 if update > 3 else 1.0) for update, rate in enumerate(scheduled, start=1)
    ]


@pytest.fixture
def by_epoch(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A schedule that multiplies the rate that it finds, at the end of the second epoch; it knows no warm-up here."""
    at = toy.RECIPE.index("--warmup-updates")
    monkeypatch.setattr(toy, "RECIPE", toy.RECIPE[:at] + toy.RECIPE[at + 2 :])
    return ["--lr-scheduler", "reduce_lr_on_plateau", "--lr-patience", "0", "--lr-threshold", "0.9"]


def test_a_resumed_training_keeps_the_lowered_rate(training: Training, faults: Faults, by_epoch: list[str]) -> None:
    def train(name: str, updates: int) -> Path:
        return training.run(name, *by_epoch, *LOWER, updates=updates, validate=True)

    faults.losses(3)
    whole = train("whole", 22)
    train("parts", 5)
    faults.losses()
    parts = train("parts", 22)
    assert set(rates(whole).values()) == {0.005, 0.0025, 0.00025}
    assert rates(parts) == rates(whole)
    assert differing(checkpoint(parts), checkpoint(whole)) == []


@pytest.mark.parametrize(
    "flags", [("--reset-optimizer", "--reset-dataloader", "--reset-meters"), ("--reset-lr-scheduler",)]
)
def test_a_new_schedule_has_its_own_rate(training: Training, faults: Faults, flags: tuple[str, ...]) -> None:
    faults.losses(3)
    training.run("run", *LOWER, updates=4)
    faults.losses()
    training.run("run", *LOWER, *flags, updates=5)
    guard = guard_of(faults.trainers[-1])
    assert guard.rates.factor == 1.0
    assert guard.signals.loss.count == 5


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
    """The first is dropped, as the batch may be to blame; then they must move, or nothing could ever fix them."""
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
            "--divergence-action fp32 cannot be combined with --zero-sharding: it cannot gather a sharded optimizer",
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
