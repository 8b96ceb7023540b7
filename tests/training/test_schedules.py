"""Learning rates of real trainings, update by update, against closed forms."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from fairseq.tasks.translation import TranslationTask

from tests import toy
from tests.config.test_hydra import TINY, recipe, run_hydra
from tests.refusals import refused


def t_fixup(lr: float, constant: float, updates: int) -> dict[int, float]:
    return {n: lr * math.sqrt(constant / (constant + n)) for n in range(updates)}


SLOW = (*(toy.PRECISIONS[name] for name in ("bf16", "memory_efficient_fp16")), ("--update-freq", "3"))


@pytest.mark.parametrize(
    "flags",
    [(), toy.PRECISIONS["fp16"], *(pytest.param(flags, marks=pytest.mark.slow) for flags in SLOW)],
    ids=" ".join,
)
def test_falls_from_the_first_update_on(
    flags: tuple[str, ...], rates: dict[int, float], toy_data: Path, tmp_path: Path
) -> None:
    """Three epochs with accumulated gradients, more than one without."""
    words = "--lr-scheduler inverse_sqrt_without_warmup --lr-decay-constant 7 --lr 0.004 --max-update 12"
    flags = (*words.split(), *flags)
    toy.train_toy(toy_data, tmp_path, *flags, arch="pre_ln_transformer")
    assert rates == pytest.approx(t_fixup(0.004, 7, 12), rel=1e-12)


def test_a_schedule_and_an_optimizer_by_yaml(rates: dict[int, float], toy_data: Path, tmp_path: Path) -> None:
    content = recipe(TranslationTask, toy_data, tmp_path / "run", {"_name": "rezero_transformer", **TINY})
    content["lr_scheduler"] = {"_name": "inverse_sqrt_without_warmup", "lr_decay_constant": 7}
    content["optimizer"] = {"_name": "lamb", "lamb_betas": "(0.8, 0.9)", "lamb_eps": 1e-6, "weight_decay": 0.01}
    state = torch.load(run_hydra(tmp_path / "config", content, tmp_path / "run"), weights_only=True)
    assert rates == pytest.approx(t_fixup(0.005, 7, 6), rel=1e-12)
    assert state["optimizer_history"][-1]["optimizer_name"] == "FairseqLamb"
    (group,) = state["last_optimizer_state"]["param_groups"]
    assert (tuple(group["betas"]), group["eps"], group["weight_decay"]) == ((0.8, 0.9), 1e-6, 0.01)
    assert 0.0 not in {float(value) for name, value in state["model"].items() if name.endswith(".alpha")}


@pytest.mark.usefixtures("rates")  # for its recipe without warm-up
def test_mistakes(toy_data: Path, tmp_path: Path) -> None:
    for flags, line in {
        "--lr-decay-constant inf": "--lr-decay-constant must be above 0, not inf",
        "--lr 0.1,0.2": "takes one --lr, not 2",
    }.items():
        scheduler = ("--lr-scheduler", "inverse_sqrt_without_warmup")
        assert line in refused(toy.train_toy, toy_data, tmp_path, *scheduler, *flags.split())
