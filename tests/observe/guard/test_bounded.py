"""What recorder and guard keep does not grow with the training."""

from __future__ import annotations

import math
import pickle
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from fairseq_plugins.observe.guard.guarding import HISTORY, Guard
from fairseq_plugins.observe.guard.settings import Settings
from fairseq_plugins.observe.guard.signals import FALL_WINDOW
from fairseq_plugins.observe.recorder import Entry
from fairseq_plugins.observe.recorder.entries import EntryFile

PLACES = [f"encoder.layers.{layer}.ffn/gradient_norm" for layer in range(3)]


def trainer_at(directory: Path) -> Any:
    """What a guard reads of a trainer; its updates are counted by hand."""
    trainer = SimpleNamespace(
        cfg=SimpleNamespace(checkpoint=SimpleNamespace(save_dir=str(directory)), lr_scheduler=None),
        task=SimpleNamespace(target_dictionary=range(100)),
        optimizer=SimpleNamespace(scaler=SimpleNamespace(loss_scale=128.0)),
        is_data_parallel_master=True,
        diagnostics_recorder=SimpleNamespace(observers=[]),
        updates=0,
        get_lr=lambda: 0.001,
    )
    trainer.get_num_updates = lambda: trainer.updates
    return trainer


def size_after(guard: Guard, trainer: Any, updates: int) -> int:
    """Bytes of everything that the guard holds when the training has made so many updates."""
    while trainer.updates < updates:
        trainer.updates += 1
        wave = math.sin(trainer.updates)
        output = {"loss": 50.0 + wave, "nll_loss": 50.0 + wave, "ntokens": 10, "sample_size": 10}
        guard.hear_all([output])
        guard.judge(lambda *_: torch.tensor(1.0), trainer)
        guard._made(trainer)
        if trainer.updates % 10 == 0:
            guard.places(Entry(trainer.updates, True, dict.fromkeys(PLACES, 2.0 + wave)))
    return len(pickle.dumps(vars(guard)))


def test_a_guard_after_twice_the_updates_holds_as_much(tmp_path: Path) -> None:
    trainer = trainer_at(tmp_path)
    guard = Guard(trainer, SimpleNamespace(listeners=()), Settings("skip", 6.0, 5, 10**6))
    once, twice = (size_after(guard, trainer, updates) for updates in (3_000, 6_000))
    assert once == twice
    # Both windows were full at the first look.
    assert len(guard._history) == HISTORY == 200
    assert len(guard.signals._scales) == FALL_WINDOW == 1000


def test_the_recorder_shortens_its_file_without_reading_it_as_a_whole(tmp_path: Path) -> None:
    """A model of 100-100 layers has 180 MB of entries, which would be a GB as objects."""
    file = EntryFile(tmp_path / "recorder.jsonl", keep=80)
    values = {f"encoder.layers.{number}.ffn/gradient_norm": math.pi * number for number in range(300)}
    for update in range(1, 101):
        file(Entry(update, True, values))
    size = file.path.stat().st_size
    assert size > 1_500_000
    tracemalloc.start()
    try:
        file(Entry(101, True, values))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert file.path.stat().st_size < size
    assert peak < size / 4
