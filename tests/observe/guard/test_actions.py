"""Effects of each action on the weights and later updates, and the guard's part of a checkpoint."""

import re
from typing import Any

import pytest
from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_plugins.errors import Diverged, UserError
from fairseq_plugins.patches.messages import explain
from fairseq_plugins.tools.observe.recorder import read
from tests.faults.exact import differences
from tests.observe.guard.conftest import Faults, Said, Training, checkpoint

STOP, SKIP = ("--divergence-action", "stop"), ("--divergence-action", "skip")


@pytest.mark.parametrize(
    "precision",
    [(), *(pytest.param((flag,), marks=pytest.mark.slow) for flag in ("--bf16", "--memory-efficient-bf16"))],
)
def test_skip_is_a_training_without_that_batch(training, faults, said, precision):
    faults.losses(3)
    guarded = training.run("guarded", *SKIP, *precision, updates=5)
    faults.losses()
    faults.left_out = {3}
    without = training.run("without", *precision, updates=5)
    made = [entry for entry in read(guarded / "recorder.jsonl") if entry.applied]
    assert made == read(without / "recorder.jsonl")
    assert differences(checkpoint(guarded)["model"], checkpoint(without)["model"]) == []
    applied = [(entry.update, entry.applied) for entry in read(guarded / "recorder.jsonl")]
    assert applied == [(1, True), (2, True), (3, False), (3, True), (4, True), (5, True)]
    (line,) = said()
    assert "; skip: the update is dropped (1 in a row, 5 end it)" in line


def test_skip_ends_in_stop(training: Training, faults: Faults, said: Said) -> None:
    faults.losses(3, 5, 6, 7)
    with pytest.raises(Diverged, match="^diverged at update 4: the loss is not a number"):
        training.run("run", *SKIP, "--divergence-patience", "3", updates=9)
    assert [line.split("; skip")[1].split(";")[0] for line in said()] == [
        ": the update is dropped (1 in a row, 3 end it)",
        ": the update is dropped (1 in a row, 3 end it)",
        ": the update is dropped (2 in a row, 3 end it)",
        ", then stop: 3 abnormal updates in a row",
    ]


def long_gradients(monkeypatch: pytest.MonkeyPatch, updates: set[int], by: float = 1e3) -> None:
    """Lengthen the gradient of some updates, and leave their losses as they are."""
    clip = Trainer.clip_grad_norm

    def lengthened(trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
        if trainer.get_num_updates() + 1 in updates:
            trainer.optimizer.multiply_grads(by)
        return clip(trainer, *args, **kwargs)

    monkeypatch.setattr(Trainer, "clip_grad_norm", lengthened)


@pytest.mark.parametrize("precision", [(), pytest.param(("--bf16",), marks=pytest.mark.slow)])
def test_a_long_gradient_alone_is_noted_and_made(training, monkeypatch, said, precision):
    """With the loss inside of its band the training is bit for bit the one without a guard."""
    long_gradients(monkeypatch, {33})
    guarded = training.run("guarded", *STOP, *precision, updates=36)
    (line,) = said()
    entries = read(guarded / "recorder.jsonl")
    place = r"(\S+) \(gradient_norm \S+ outside \S+ to \S+ since update 33\)"
    assert (
        match := re.match(
            r"update 33: gradient norm \d+, the band ends at [\d.]+ \(\d+ deviations\); learning rate 0\.\d+; "
            rf"first in {place}; noted: the loss is within its band, so the update is kept \(1 in a row, stop at 5\)$",
            line,
        )
    )
    norms = [entry.values[f"{match[1]}/gradient_norm"] for entry in entries]
    assert norms[32] > 100 * max(norms[25:32])
    without = training.run("without", *precision, updates=36)
    assert differences(checkpoint(guarded)["model"], checkpoint(without)["model"]) == []
    assert entries == read(without / "recorder.jsonl")
    assert not (guarded / "divergence").exists()


def test_long_gradients_in_a_row_end_in_stop(training: Training, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    long_gradients(monkeypatch, {32, *range(34, 40)})
    with pytest.raises(Diverged, match="^diverged at update 36: gradient norm "):
        training.run("run", *STOP, "--divergence-patience", "3", updates=45)
    assert [line.split("; ")[-1].split(",")[0] for line in said()] == [
        "noted: the loss is within its band",
        "noted: the loss is within its band",
        "noted: the loss is within its band",
        "the training ends here",
    ]
    assert "; stop: 3 abnormal updates in a row; the training ends here" in said()[-1]


def test_dropped_updates_leave_bands_alone(training: Training, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    long_gradients(monkeypatch, {33})
    with pytest.raises(Diverged):
        training.run("run", "--divergence-action", "skip", "--divergence-patience", "3", updates=45)
    bands = re.findall(r" outside (\S+ to \S+) since update 33", "\n".join(said()))
    assert len(bands) == 3
    assert len(set(bands)) == 1


def test_the_training_as_it_was_is_saved_and_can_go_on(training: Training, faults: Faults) -> None:
    faults.losses(4)
    faults.before[4] = lambda trainer: setattr(checkpoint_utils.save_checkpoint, "best", 1.5)
    with pytest.raises(Diverged):
        training.run("run", "--divergence-action", "stop", updates=6)
    del faults.before[4]
    faults.losses()
    saved = training.directory / "run" / "divergence" / "last.pt"
    state = checkpoint(saved.parent, "last.pt")
    assert state["optimizer_history"][-1]["num_updates"] == 3
    assert state["extra_state"]["best"] == 1.5
    on = training.run("on", "--restore-file", str(saved), updates=6)
    faults.left_out = {4}
    without = training.run("without", updates=6)
    assert differences(checkpoint(on)["model"], checkpoint(without)["model"]) == []


def test_a_training_that_starts_anew_has_new_bands(training: Training, faults: Faults) -> None:
    for updates, flags in ((3, ()), (2, ("--reset-optimizer", "--reset-dataloader", "--reset-meters"))):
        training.run("run", *SKIP, *flags, updates=updates)
        assert faults.trainers[-1].divergence_guard.signals.loss.count == updates


def test_another_precision_than_that_of_the_checkpoint_is_one_line(training: Training) -> None:
    training.run("run", updates=2)
    with pytest.raises(AssertionError) as caught:
        training.run("run", "--bf16", updates=4)
    assert "trained in another precision or with another optimizer: use the flags" in str(explain(caught.value))


MISTAKES = {
    "--divergence-action sotp": ("unknown --divergence-action 'sotp' (did you mean 'stop'?); legal values: skip, stop"),
    "--divergence-action stop --divergence-band 0": "--divergence-band must be at least 1, not 0.0",
    "--divergence-action stop --divergence-band nan": "--divergence-band must be at least 1, not nan",
    "--divergence-patience 0": "--divergence-patience must be at least 1, not 0",
    "--divergence-plateau -1": "--divergence-plateau must be at least 0, not -1",
    "--divergence-action stop --use-bmuf": (
        "--divergence-action needs the gradients of all processes in each update: "
        "it does not work with --use-bmuf or --ddp-backend slowmo"
    ),
}


def test_bad_settings(training: Training, subtests: pytest.Subtests) -> None:
    for flags, problem in MISTAKES.items():
        with subtests.test(flags), pytest.raises(UserError, match=f"^{re.escape(problem)}$"):
            training.run("run", *flags.split())


def test_fairseqs_meters_are_left_as_they_were(training: Training, faults: Faults) -> None:
    """Each context that an update enters is left again, also where the update is dropped."""
    from fairseq.logging import metrics

    faults.losses(2)
    training.run("run", *SKIP)
    assert {name: count for name, count in metrics._active_aggregators_cnt.items() if count} == {"default": 1}
