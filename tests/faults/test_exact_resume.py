"""A training that is killed between two checkpoints and resumed is the undisturbed one: every optimizer, schedule, ...

In this process, so that there is time for all of them; the real commands are in ``test_faults.py``.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
from fairseq.trainer import Trainer

from tests import toy
from tests.faults.exact import differences, state_of

UPDATES = 15
KILLED_AT, KILLED_EARLY = 13, 11
"""In the second epoch; the last checkpoint has 12 updates, and 10, at the end of the first epoch."""

SCHEDULE = {"--lr-scheduler": "inverse_sqrt", "--warmup-updates": "4"}
DIAGNOSTICS = "--criterion label_smoothed_cross_entropy_with_diagnostics --diagnostics-interval 2"
MEMORY_EFFICIENT = "--memory-efficient-fp16 --fp16-init-scale 4"
FP16 = "--fp16 --fp16-no-flatten-grads --fp16-init-scale 4"

FAST = {
    "bf16": "--bf16",
    "amp, ema": "--amp --store-ema --ema-decay 0.9 --ema-fp32 --ema-update-freq 5",
    "grid": "--length-grid 1.3",
    "rates by kind": "--arch completep_transformer --depth-mup-alpha 0.5 --depth-mup-base 1",
    "guard and recorder": f"{DIAGNOSTICS} --divergence-action skip --optimizer foreach_adam",
    "lamb, memory-efficient-fp16": f"--optimizer lamb {MEMORY_EFFICIENT}",  # no master weights, but a scale of the loss
}
SLOW = {
    "fp32": "",
    "muon": "--optimizer muon --muon-lr-scale 2 --weight-decay 0.1",
    "memory-efficient-bf16": "--memory-efficient-bf16",
    "memory-efficient-fp16": f"{MEMORY_EFFICIENT} --fp16-scale-window 4",
    "fp16": f"{FP16} --fp16-scale-window 4",
    "fp16, ema": f"{FP16} --store-ema --ema-fp32 --ema-decay 0.9",
    "amp, recorder": f"--amp {DIAGNOSTICS}",
    "ema": "--store-ema --ema-decay 0.9 --ema-start-update 4",
    "bf16, guard": f"--bf16 {DIAGNOSTICS} --divergence-action skip",
    **{name: f"--optimizer {name}" for name in ("foreach_adam", "fused_adam", "lamb", "radam", "adafactor", "nag")},
    "radam, memory-efficient-fp16": f"--optimizer radam {MEMORY_EFFICIENT}",
    "muon, fp16": f"--optimizer muon {FP16}",
    "muon, bf16": "--optimizer muon --bf16",
    "lamb, fp16": f"--optimizer lamb {FP16}",
    **{f"{name}, memory-efficient-bf16": f"--optimizer {name} --memory-efficient-bf16" for name in ("lamb", "radam")},
    "inverse_sqrt_without_warmup": "--lr-scheduler inverse_sqrt_without_warmup",
    "polynomial_decay": "--lr-scheduler polynomial_decay --warmup-updates 4",
    "cosine": "--lr-scheduler cosine --warmup-updates 2 --lr-period-updates 5 --lr-shrink 0.5",
    "reduce_lr_on_plateau": "--lr-scheduler reduce_lr_on_plateau --lr-patience 0 --lr-threshold 1 --validate",
    "lamb, validated": "--optimizer lamb --validate",
    "layer drop": "--encoder-layerdrop 0.3 --dropout 0.3 --update-freq 2",
    "loss by sentence": "--criterion label_smoothed_cross_entropy_by_sentence",
    "chunked loss": "--criterion chunked_label_smoothed_cross_entropy",
    "new batches each epoch": "--update-epoch-batch-itr True",
}


def train(data: Path, directory: Path, said: str) -> Path:
    flags = said.split()
    schedule = {} if "--lr-scheduler" in flags else SCHEDULE
    validate = "--validate" in flags
    flags = [flag for flag in flags if flag != "--validate"]
    flags += [word for pair in schedule.items() for word in pair]
    saving = ("--save-interval-updates", "3", "--keep-interval-updates", "1", "--no-epoch-checkpoints")
    length = ("--max-update", str(UPDATES))
    return toy.train_toy(data, directory, *saving, *length, *flags, arch="admin_transformer", validate=validate)


def copied_at(monkeypatch: pytest.MonkeyPatch, updates: int, source: Path, copy: Path) -> None:
    """Copy the directory of a training before the next update after this number: as a kill would leave it."""
    step = Trainer.train_step

    def copy_and_step(trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
        if trainer.get_num_updates() == updates and not copy.exists():
            shutil.copytree(source, copy)
        return step(trainer, *args, **kwargs)

    monkeypatch.setattr(Trainer, "train_step", copy_and_step)


@pytest.mark.parametrize("case", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_killed_training_is_exact(case: str, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {**FAST, **SLOW}[case]
    at = toy.RECIPE.index("--lr-scheduler")
    monkeypatch.setattr(toy, "RECIPE", toy.RECIPE[:at] + toy.RECIPE[at + 4 :])
    updates = KILLED_EARLY if "--validate" in flags else KILLED_AT
    with monkeypatch.context() as patch:
        copied_at(patch, updates, tmp_path / "whole", tmp_path / "killed")
        whole = train(toy_data, tmp_path / "whole", flags)
    parts = train(toy_data, tmp_path / "killed", flags)
    assert differences(state_of(whole), state_of(parts)) == []
    assert state_of(whole)["updates"] == UPDATES
    records = [[line for line in open(path, encoding="utf-8")] for path in sorted(tmp_path.rglob("*.jsonl"))]
    assert records[: len(records) // 2] == records[len(records) // 2 :]
    assert bool(records) == ("diagnostics" in flags)
