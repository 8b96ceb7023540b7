"""Recording a training changes nothing of it, and what is recorded is what the trainer itself has seen."""

import itertools
import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import progress_bar
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer
from fairseq_cli import train

from fairseq_plugins.core.method import METHODS, Axis
from fairseq_plugins.core.residual import Residual
from fairseq_plugins.tools.observe.recorder import Entry, read
from tests import processes, toy
from tests.faults.exact import differences
from tests.language_model import text
from tests.observe.recording import FEW, ON, overflow_on_a_cpu
from tests.representatives import for_each

EXACT = ("--dropout", "0")


def recorded(data: Path, place: Path, *flags: str, arch: str = "admin_transformer", updates: int = 2) -> list[Entry]:
    toy.train_toy(data, place, *ON, *FEW, str(updates), *flags, arch=arch)
    return read(place / "recorder.jsonl")


@pytest.fixture
def clipped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Gradient norms as fairseq's trainer has found them."""
    norms: list[float] = []
    stock = Trainer.clip_grad_norm

    def listen(self: Trainer, clip_norm: float) -> Any:
        norm = stock(self, clip_norm)
        norms.append(float(norm))
        return norm

    monkeypatch.setattr(Trainer, "clip_grad_norm", listen)
    return norms


TRAININGS = {
    "pre_ln_transformer": "--encoder-layerdrop 0.5 --word-dropout 0.2",
    "admin_transformer": "--checkpoint-activations --update-freq 2",
    "transformer": "",
}


@pytest.mark.parametrize("arch", TRAININGS)
def test_the_training_is_bit_for_bit_that_of_the_base(toy_data: Path, tmp_path: Path, arch: str) -> None:
    common = (*FEW, "6", *TRAININGS[arch].split())

    def train_with(*more: str) -> Path:
        return toy.train_toy(toy_data, tmp_path / str(len(more)), *common, *more, arch=arch)

    base, with_it = (toy.losses_of(TranslationTask, lambda more=more: train_with(*more)) for more in ((), ON))
    assert base[0] == with_it[0]
    assert len(read(tmp_path / str(len(ON)) / "recorder.jsonl")) == 6
    assert differences(base[1]["model"], with_it[1]["model"]) == []


PRECISIONS = (
    "",
    "--update-freq 2",
    "--bf16",
    "--memory-efficient-bf16",
    "--fp16 --memory-efficient-fp16 --fp16-init-scale 16",
    "--fp16 --fp16-no-flatten-grads --fp16-init-scale 16 --update-freq 2",
)


def test_the_norm_of_all_gradients_is_the_trainers(toy_data, tmp_path, clipped, subtests):
    for number, flags in enumerate(PRECISIONS):
        clipped.clear()
        with subtests.test(flags):
            entries = recorded(toy_data, tmp_path / str(number), *flags.split(), updates=3)
            assert [entry.update for entry in entries] == [1, 2, 3]
            norms = [entry.values["gradient_norm"] for entry in entries]
            assert norms == pytest.approx(clipped, rel=2e-3 if "16" in flags else 1e-5)
            for entry in entries:
                assert entry.applied
                parts = [value**2 for name, value in entry.values.items() if name.endswith("/gradient_norm")]
                assert sum(parts) == pytest.approx(entry.values["gradient_norm"] ** 2)
                assert entry.values.get("loss_scale") == (16.0 if "--fp16" in flags else None)


def test_half_precision_shows_what_full_precision_does(toy_data: Path, tmp_path: Path) -> None:
    flags = ("--fp16", "--memory-efficient-fp16", "--fp16-init-scale", "64")
    (half,) = recorded(toy_data, tmp_path / "half", *EXACT, *flags, updates=1)
    (full,) = recorded(toy_data, tmp_path / "full", *EXACT, updates=1)
    values = {name: value for name, value in half.values.items() if name != "loss_scale"}
    assert values == pytest.approx(dict(full.values), rel=0.02, abs=2e-4)


def test_checkpointing_and_processes_agree(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes.fork_ranks(monkeypatch)
    # Admin is left out: its profile is that of the first batch of every process.
    flags, arch = (*ON, *FEW, "3", *EXACT), "b2t_transformer"
    runs = {"plain": "--update-freq 2", "checkpointed": "--update-freq 2 --checkpoint-activations"}
    for name, more in {**runs, "two": "--distributed-world-size 2"}.items():
        config = toy.parse_training(toy_data, tmp_path / name, *flags, *more.split(), arch=arch)
        toy.forget_earlier_trainings()
        distributed_utils.call_main(config, train.main)
    plain, checkpointed, two = (read(tmp_path / name / "recorder.jsonl") for name in (*runs, "two"))
    assert [entry.update for entry in plain] == [1, 2, 3]
    for others, rel in ((checkpointed, 1e-6), (two, 1e-4)):
        for expected, entry in zip(plain, others, strict=True):
            assert entry.update == expected.update
            assert dict(entry.values) == pytest.approx(dict(expected.values), rel=rel, abs=1e-7)


def test_loss_and_rate_are_those_of_the_log(toy_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        entries = recorded(toy_data, tmp_path, "--log-format", "json", "--log-interval", "1", updates=3)
    said = [json.loads(record.getMessage()) for record in caplog.records if record.name == "train_inner"]
    assert [round(entry.values["loss"], 3) for entry in entries] == [float(one["loss"]) for one in said]
    # The trainer logs the rate of the next update; the schedule warms up to 0.005 in four.
    assert [entry.values["learning_rate"] for entry in entries] == pytest.approx([0, 0.00125, 0.0025])


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[torch.nn.Module]:
    """The models of the trainings that follow."""
    built: list[torch.nn.Module] = []
    stock = Trainer.__init__

    def listen(self: Trainer, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        built.append(self.get_model())

    monkeypatch.setattr(Trainer, "__init__", listen)
    return built


def check_every_residual(model: torch.nn.Module, entry: Entry) -> None:
    sub_layers = [name.removesuffix("_residual") for name, one in model.named_modules() if isinstance(one, Residual)]
    assert sub_layers
    for name in sub_layers:
        for kind in ("branch_rms", "stream_rms", "branch_gradient_norm", "gradient_norm"):
            assert math.isfinite(entry.values[f"{name}/{kind}"]), (name, kind)
    assert not any(one._forward_hooks for one in model.modules())


@for_each("method", METHODS, Axis.ATTENTION)
def test_every_method(toy_data: Path, tmp_path: Path, method: str, models: list[torch.nn.Module]) -> None:
    (entry,) = recorded(toy_data, tmp_path, arch=f"{method}_transformer", updates=1)
    check_every_residual(models[0], entry)


def test_a_language_model(characters: Path, tmp_path: Path, models: list[torch.nn.Module]) -> None:
    flags = ("--criterion", "cross_entropy_with_diagnostics", *ON[2:], "--max-update", "2")
    text.train(characters, tmp_path, "admin_transformer_lm", *flags)
    entries = read(tmp_path / "recorder.jsonl")
    assert len(entries) == 2
    for entry in entries:
        check_every_residual(models[0], entry)


def test_what_a_residual_weighs(toy_data: Path, tmp_path: Path) -> None:
    (rezero,) = recorded(toy_data, tmp_path / "a", "--rezero-alpha", "0.5", arch="rezero_transformer", updates=1)
    assert not any("history" in name for name in rezero.values)
    assert rezero.values["encoder.layers.1.ffn/branch_scale"] == 0.5
    assert rezero.values["encoder.layers.1.ffn/stream_scale"] == 1.0
    (admin,) = recorded(toy_data, tmp_path / "b", updates=1)
    checkpoint = toy.weights_of(tmp_path / "b" / "checkpoint_last.pt")
    name = "decoder.layers.1.encoder_attn"
    profiled = float(checkpoint[f"{name}_residual.omega_profiled"].mean())
    assert admin.values[f"{name}/stream_scale"] == pytest.approx(profiled)
    # At a Post-LN residual connection the stream is the output of the LayerNorm below it.
    below = admin.values["decoder.layers.1.self_attn/norm_output_rms"]
    assert admin.values[f"{name}/stream_rms"] == pytest.approx(below)
    assert admin.values[f"{name}/norm_output_rms"] == pytest.approx(1.0, abs=1e-3)


def test_history_weights_are_those_that_the_update_began_with(toy_data: Path, tmp_path: Path) -> None:
    for number, flags in enumerate(("", "--dlcl-weights dimension", "--fp16 --memory-efficient-fp16")):
        run = tmp_path / str(number)
        more = ("--save-interval-updates", "1", *flags.split())
        entries = recorded(toy_data, run, *more, arch="dlcl_transformer", updates=3)
        for entry, updates in ((entries[1], 1), (entries[2], 2)):
            (path,) = run.glob(f"checkpoint_*_{updates}.pt")
            expected = {}
            for stack in ("encoder", "decoder"):
                table = toy.weights_of(path)[f"{stack}.history.weight"].float().mean(dim=2)
                for i in range(3):
                    for k in range(i + 1):
                        expected[f"{stack}.history.{i}.{k}/history_weight"] = float(table[i, k])
            seen = {name: value for name, value in entry.values.items() if name.endswith("/history_weight")}
            assert seen == pytest.approx(expected, rel=1e-3 if flags else 1e-6), flags
        assert any(entries[0].values[name] != entries[2].values[name] for name in expected)


def test_gradients_and_norms_of_a_stock_model(toy_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        (entry,) = recorded(toy_data, tmp_path, arch="transformer", updates=1)
    assert [record.getMessage() for record in caplog.records if " 0 residual connections and " in record.getMessage()]
    for name in ("encoder.layers.0.self_attn", "encoder.layers.1.ffn", "decoder.layers.1.encoder_attn"):
        assert entry.values[f"{name}/gradient_norm"] > 0
    assert entry.values["encoder.layers.1.final_layer_norm/norm_output_rms"] == pytest.approx(1.0, abs=1e-3)
    assert not any("branch" in name for name in entry.values)


def test_resuming_goes_on_where_the_checkpoint_is(toy_data: Path, tmp_path: Path) -> None:
    whole = recorded(toy_data, tmp_path / "whole", updates=5)
    path = tmp_path / "parts" / "recorder.jsonl"
    recorded(toy_data, path.parent, updates=3)
    # Killed in the fifth update, two past its last checkpoint.
    with path.open("a", encoding="utf-8") as file:
        file.write(Entry(4, True, {"loss": 9.0}).to_json() + '\n{"update": 5, "appl')
    assert recorded(toy_data, path.parent, updates=5) == whole
    # A new training in an old directory starts anew.
    again = recorded(toy_data, path.parent, "--reset-optimizer", "--reset-dataloader", "--reset-meters", updates=2)
    assert [entry.update for entry in again] == [1, 2]


def test_an_overflow_is_noted_as_not_applied(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overflow_on_a_cpu(monkeypatch)
    flags = ("--fp16", "--fp16-no-flatten-grads", "--fp16-init-scale", str(2**40))
    entry = recorded(toy_data, tmp_path, *flags, updates=1)[0]
    assert (entry.update, entry.applied) == (1, False)
    assert not math.isfinite(entry.values["gradient_norm"])
    assert entry.values["loss_scale"] == 2**40


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], float]:
    """Values that TensorBoard gets while training, by name and update."""
    shown: dict[tuple[str, int], float] = {}

    def writer(directory: str) -> mock.Mock:
        seen = shown if Path(directory).name == "train_inner" else {}
        return mock.Mock(add_scalar=lambda name, value, step: seen.update({(name, step): value}))

    monkeypatch.setattr(progress_bar, "SummaryWriter", writer)
    monkeypatch.setattr(progress_bar, "_tensorboard_writers", {})
    return shown


def test_tensorboard_has_every_number_and_progress_lines_none(toy_data, tmp_path, board, caplog):
    flags = ("--tensorboard-logdir", str(tmp_path / "board"), "--log-interval", "1", "--log-format", "simple")
    with caplog.at_level(logging.INFO):
        entries = recorded(toy_data, tmp_path / "run", *flags)
    expected = {(f"diagnostics/{name}", one.update): value for one in entries for name, value in one.values.items()}
    assert {key: value for key, value in board.items() if key[0].startswith("diagnostics/")} == expected
    progress = [record.getMessage() for record in caplog.records if record.name.startswith("train")]
    assert len(progress) >= 2
    assert "diagnostics/" not in "".join(progress)


def test_nothing_is_watched_between_recorded_updates(toy_data, tmp_path, monkeypatch, models):
    hooks: list[int] = []
    train_step = TranslationTask.train_step

    def count(self: Any, *args: Any, **kwargs: Any) -> Any:
        hooks.append(sum(len(one._forward_hooks) for one in models[0].modules()))
        return train_step(self, *args, **kwargs)

    monkeypatch.setattr(TranslationTask, "train_step", count)
    entries = recorded(toy_data, tmp_path, "--diagnostics-interval", "3", updates=7)
    assert [entry.update for entry in entries] == [3, 6]
    assert [number for number, count in enumerate(hooks, start=1) if count] == [3, 6]
    assert list(itertools.filterfalse(None, hooks)) == [0] * 5
