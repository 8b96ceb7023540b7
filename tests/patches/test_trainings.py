"""Trainings that stock fairseq ends too late, with fewer sentences or checkpoints, on a TPU, or not at all; resumed.

That a resumed training is the uninterrupted one is in ``tests/faults/test_exact_resume.py``.
"""

import itertools
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import options
from fairseq.data import EpochBatchIterator, IdDataset, data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim import AMPOptimizer, FP16Optimizer
from fairseq.trainer import Trainer
from fairseq_cli import train
from torch import nn

from fairseq_plugins.integrity import num_updates
from fairseq_plugins.patches.fp32_masters_on_resume import MASTERS, SCALER
from tests import toy
from tests.patches.conftest import Unpatch
from tests.refusals import line_of, refused

slow = pytest.mark.slow
UPDATES_PER_EPOCH = 12  # 120 sentences, ten a batch
LONGEST = 10
"""Nine words and the end mark."""
DECAY = ("--lr-scheduler", "polynomial_decay", "--lr", "0.006", "--warmup-updates", "2")
# Two updates of warm-up from 0, then a straight line that would be 0 after six updates.
TO_SIX = [0.0, 0.003, 0.006, 0.0045, 0.003, 0.0015]


def test_bf16_needs_no_tpu(toy_data: Path, tmp_path: Path) -> None:
    for flag in ("--bf16", "--memory-efficient-bf16"):
        flags = (flag, "--share-decoder-input-output-embed", "--max-update", "3")
        state = torch.load(toy.train_toy(toy_data, tmp_path / flag, *flags), weights_only=True)
        # fairseq stores every weight in float32; what bfloat16 cannot hold would show.
        assert all(torch.equal(weight, weight.bfloat16().float()) for weight in state["model"].values())
        assert num_updates(state) == 3
        # A shared table is stored once.
        places = [state["model"][f"decoder.{name}.weight"].data_ptr() for name in ("embed_tokens", "output_projection")]
        assert len(set(places)) == 1
    assert toy.parse_training(toy_data, tmp_path, "--bf16", "--tpu").common.tpu


def test_training_stops_at_a_longer_sentence_that_stock_leaves_out(toy_data: Path) -> None:
    def train(max_tokens: int, *flags: str) -> None:
        toy.train_toy(toy_data, toy_data, "--max-update", "1", "--max-tokens", str(max_tokens), "--no-save", *flags)

    line = line_of(train, LONGEST - 1)
    assert str(line).startswith("--max-tokens 9 is smaller than the longest sentence, which has")
    train(LONGEST)
    train(7, "--max-source-positions", "7", "--max-target-positions", "7")


def test_lengths_in_buckets(toy_data: Path, tmp_path: Path) -> None:
    assert data_utils.get_buckets([*range(1, 11)], 2).tolist() == [5, 10]
    made = toy.train_toy(toy_data, tmp_path, "--num-batch-buckets", "2", "--max-update", "3", "--no-epoch-checkpoints")
    assert num_updates(torch.load(made, weights_only=True)) == 3


BATCHES = ("--batch-size", "10", "--required-batch-size-multiple", "1", "--no-epoch-checkpoints")


def reached(data: Path, directory: Path, *flags: str, **settings: Any) -> int | None:
    """Train, and return the updates that the last checkpoint has seen."""
    return num_updates(torch.load(toy.train_toy(data, directory, *BATCHES, *flags, **settings), weights_only=True))


@pytest.mark.parametrize("limit", [pytest.param(1, marks=slow), 12, pytest.param(13, marks=slow)])
def test_a_training_at_its_end_makes_no_update_more(limit: int, toy_data: Path, tmp_path: Path) -> None:
    for updates in (limit, limit, limit + 1):
        assert reached(toy_data, tmp_path, "--max-update", str(updates)) == updates
    for _ in range(2):
        assert reached(toy_data, tmp_path / "epoch", "--max-epoch", "1") == UPDATES_PER_EPOCH


WORSE = ("--patience", "3", "--maximize-best-checkpoint-metric")
"""The first value of a falling loss is the best, so the training ends after four epochs."""


def test_patience_counts_on_after_every_stop_and_anew_in_every_training(toy_data: Path, tmp_path: Path) -> None:
    def until(epoch: int, name: str) -> int | None:
        return reached(toy_data, tmp_path / name, *WORSE, "--max-epoch", str(epoch), validate=True)

    ends = [UPDATES_PER_EPOCH * epoch for epoch in (1, 2, 3, 4, 4, 4)]
    assert until(6, "whole") == ends[-1]
    assert [until(epoch, "stopped") for epoch in range(1, 7)] == ends
    train.main(toy.parse_training(toy_data, tmp_path / "next", *BATCHES, *WORSE, "--max-epoch", "6", validate=True))
    states = [torch.load(tmp_path / f"{name}/checkpoint_last.pt", weights_only=True) for name in ("whole", "next")]
    assert [num_updates(state) for state in states] == ends[-1:] * 2
    assert states[0]["extra_state"]["best"] == states[1]["extra_state"]["best"]


def test_another_metric_chooses_the_best_checkpoint_anew(toy_data: Path, tmp_path: Path) -> None:
    """Each perplexity is above the loss, the best value so far."""
    for epoch, metric in ((1, "loss"), (2, "ppl")):
        flags = ("--max-epoch", str(epoch), "--best-checkpoint-metric", metric)
        reached(toy_data, tmp_path, *flags, validate=True)
    best = torch.load(tmp_path / "checkpoint_best.pt", weights_only=True)
    assert num_updates(best) == 2 * UPDATES_PER_EPOCH
    assert best["extra_state"]["best"] == best["extra_state"]["val_loss"]


def test_a_training_whose_time_is_up_makes_no_update_more(toy_data: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert reached(toy_data, tmp_path, "--stop-time-hours", "1e-9", "--max-update", "9") == 1


def test_a_batch_without_an_update_is_not_validated(toy_data, tmp_path, monkeypatch) -> None:
    step, batches, validated = Trainer.train_step, itertools.count(), []
    dropped = (4, 5)
    monkeypatch.setattr(Trainer, "train_step", lambda *args: None if next(batches) in dropped else step(*args))
    monkeypatch.setattr(train, "validate", lambda *args: [float(validated.append(args[1].get_num_updates()) or 1)])
    flags = ("--validate-interval-updates", "2", "--max-update", "6", "--no-save")
    toy.train_toy(toy_data, tmp_path, *BATCHES, *flags, validate=True)
    assert validated == [2, 4, 6]


def test_an_update_checkpoint_at_the_end_of_an_epoch(toy_data: Path, tmp_path: Path) -> None:
    def saved(name: str, *flags: str) -> set[str]:
        words = (*BATCHES, "--save-interval-updates", "4", "--no-last-checkpoints", "--max-update", "24", *flags)
        toy.train_toy(toy_data, tmp_path / name, *words)
        return {path.name for path in (tmp_path / name).glob("*.pt")}

    due = {f"checkpoint_{1 + (update - 1) // UPDATES_PER_EPOCH}_{update}.pt" for update in range(4, 28, 4)}
    assert saved("all") == due
    state = torch.load(tmp_path / "all" / "checkpoint_1_12.pt", weights_only=True)
    assert state["extra_state"]["train_iterator"]["epoch"] == 2
    assert saved("two", "--keep-interval-updates", "2") == {"checkpoint_2_20.pt", "checkpoint_2_24.pt"}


def test_validation_on_the_training_set_changes_no_epoch(toy_data: Path, tmp_path: Path) -> None:
    flags = ("--max-epoch", "3", "--valid-subset", "train", "--max-tokens", "400", "--no-last-checkpoints")
    toy.train_toy(toy_data, tmp_path, *flags, validate=True)
    every = {"checkpoint1.pt", "checkpoint2.pt", "checkpoint3.pt"}
    assert {path.name for path in tmp_path.glob("checkpoint[0-9].pt")} == every


@pytest.mark.parametrize("flags", ["--max-update 6", "--max-update 4 --total-num-update 6"])
def test_polynomial_decay_follows_max_update_unless_told(flags, rates, toy_data, tmp_path):
    toy.train_toy(toy_data, tmp_path, *DECAY, *flags.split(), "--no-save")
    assert rates == pytest.approx(dict(enumerate(TO_SIX[: int(flags.split()[1])])), rel=1e-9)


def test_polynomial_decay_in_other_commands(toy_data: Path) -> None:
    arguments = [str(toy_data), "--path", "model.pt", "--lr-scheduler", "polynomial_decay"]
    parsed = options.parse_args_and_arch(options.get_generation_parser(), input_args=arguments)
    assert convert_namespace_to_omegaconf(parsed).lr_scheduler.total_num_update == 0


EPOCH = 3


def iterator(batches: int, shards: int, shard: int = 0, size: int = 2) -> EpochBatchIterator:
    """A batch is the list of its sentences' numbers."""
    made = [list(range(i * size, (i + 1) * size)) for i in range(batches)]
    return EpochBatchIterator(IdDataset(), list, made, seed=1, num_shards=shards, shard_id=shard, epoch=EPOCH)


def state_after(taken: int, batches: int, shards: int) -> dict[str, object]:
    """A checkpoint from the moment when each process has taken so many batches."""
    source = iterator(batches, shards)
    epoch = source.next_epoch_itr()
    for _ in range(taken):
        next(epoch)
    return source.state_dict()


def rest(state: dict[str, object], batches: int, shards: int, size: int = 2) -> list[list[list[int]]]:
    """The batches that each of the processes still takes."""
    left = []
    for shard in range(shards):
        resumed = iterator(batches, shards, shard, size)
        resumed.load_state_dict(state)
        left.append([batch for batch in resumed.next_epoch_itr() if batch])
    return left


def test_what_is_left_is_dealt_to_the_processes_that_are_there_now(unpatch: Unpatch) -> None:
    order = [batch for batch in iterator(40, 1).next_epoch_itr()]
    for before, taken, now in ((1, 24, 4), (4, 6, 1), (2, 12, 8), (8, 3, 2), (2, 12, 2)):
        expected = [order[24:][shard::now] for shard in range(now)]
        assert rest(state_after(taken, 40, before), 40, now) == expected
    # Once batches are cut, 24 of 40 are 48 of 80 halves.
    assert [len(left) for left in rest(state_after(24, 40, 1), 80, 1, size=1)] == [80 - 48]
    # The share of the last batch is less than one batch of each process.
    assert [len(left) for left in rest(state_after(39, 40, 1), 40, 16)] == [1] * 8 + [0] * 8
    # A checkpoint of stock fairseq does not say of how many processes it is.
    stock = {"version": 2, "epoch": EPOCH, "iterations_in_epoch": 10, "shuffle": True}
    assert [len(left) for left in rest(stock, 40, 2)] == [10, 10]
    unpatch(EpochBatchIterator, "load_state_dict")
    with pytest.raises(RuntimeError, match="dataloader mismatch"):
        rest(state_after(24, 40, 1), 40, 4)


def test_master_weights_of_bf16_and_stock(toy_data, tmp_path, unpatch, monkeypatch, caplog):
    """Stock loads checkpoints of this package; stock's own are loaded here, with a warning."""

    def state_after_updates(updates: int) -> dict[str, Any]:
        path = toy.train_toy(toy_data, tmp_path, "--bf16", "--max-update", str(updates), "--no-epoch-checkpoints")
        return torch.load(path, weights_only=True)["last_optimizer_state"]

    assert any(not torch.equal(master, master.bfloat16().float()) for master in state_after_updates(4)[MASTERS])
    unpatch(FP16Optimizer, "state_dict", "load_state_dict")
    assert MASTERS not in state_after_updates(5)
    monkeypatch.undo()
    with caplog.at_level(logging.WARNING):
        state_after_updates(6)
    assert "no float32 master weights" in caplog.text


def test_master_weights_of_other_parameters_are_refused(tmp_path: Path) -> None:
    config = toy.parse_training(Path("nowhere"), tmp_path, "--bf16")
    optimizer = FP16Optimizer.build_optimizer(config, [nn.Parameter(torch.ones(4).bfloat16())])
    state = {**optimizer.state_dict(), MASTERS: [torch.ones(3)]}
    assert "do not match the model or --fp16-no-flatten-grads" in refused(optimizer.load_state_dict, state)


def test_the_scale_of_amp_is_kept(tmp_path: Path) -> None:
    """A scaler without a GPU is switched off, so this one is put in its place; its tensors are on the CPU."""
    config = toy.parse_training(Path("nowhere"), tmp_path)
    states = []
    for scale in (4.0, 128.0):
        optimizer = AMPOptimizer.build_optimizer(config, [nn.Parameter(torch.ones(2))])
        assert SCALER not in optimizer.state_dict()
        optimizer._grad_scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        states.append(optimizer.state_dict())
    optimizer.load_state_dict(states[0])
    assert optimizer.scaler.get_scale() == 4.0
