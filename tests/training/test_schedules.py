"""Learning rates of real trainings, update by update, against closed forms."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fairseq.optim import FairseqOptimizer
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from fairseq_plugins.errors import UserError
from fairseq_plugins.training.inverse_sqrt_without_warmup import (
    InverseSqrtWithoutWarmup,
    InverseSqrtWithoutWarmupConfig,
)
from tests import toy
from tests.config.test_hydra import TINY, recipe, run_hydra

WITHOUT_WARMUP = ("--lr-scheduler", "inverse_sqrt_without_warmup")


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """The rate with which each update is made, by the number of updates before it."""
    warmup = toy.RECIPE.index("--warmup-updates")
    monkeypatch.setattr(toy, "RECIPE", toy.RECIPE[:warmup] + toy.RECIPE[warmup + 2 :])
    seen: dict[int, float] = {}
    train_step = Trainer.train_step

    def watch(trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
        before = trainer.get_num_updates()
        assert before not in seen
        (seen[before],) = {group["lr"] for group in trainer.optimizer.param_groups}
        return train_step(trainer, *args, **kwargs)

    monkeypatch.setattr(Trainer, "train_step", watch)
    return seen


def t_fixup(lr: float, constant: float, updates: int) -> dict[int, float]:
    return {n: lr * math.sqrt(constant / (constant + n)) for n in range(updates)}


@pytest.mark.parametrize(
    "flags",
    [
        (),
        pytest.param(("--bf16",), marks=pytest.mark.slow),
        ("--fp16", "--fp16-no-flatten-grads", "--fp16-init-scale", "4"),
        pytest.param(("--memory-efficient-fp16", "--fp16-init-scale", "4"), marks=pytest.mark.slow),
        pytest.param(("--update-freq", "3"), marks=pytest.mark.slow),
        ("--optimizer", "radam", "--weight-decay", "0.1", "--no-weight-decay-on", "norm"),
    ],
    ids=["single", "bf16", "fp16", "memory_efficient_fp16", "accumulated", "two_groups"],
)
def test_falls_from_the_first_update_on(
    flags: tuple[str, ...], rates: dict[int, float], toy_data: Path, tmp_path: Path
) -> None:
    """Three epochs with accumulated gradients, more than one without."""
    flags = (*WITHOUT_WARMUP, "--lr-decay-constant", "7", "--lr", "0.004", "--max-update", "12", *flags)
    toy.train_toy(toy_data, tmp_path, *flags, arch="pre_ln_transformer")
    assert rates == pytest.approx(t_fixup(0.004, 7, 12), rel=1e-12)


def test_goes_on_where_it_stopped(rates: dict[int, float], toy_data: Path, tmp_path: Path) -> None:
    for stop in ("5", "12"):
        toy.train_toy(toy_data, tmp_path, *WITHOUT_WARMUP, "--lr-decay-constant", "7", "--max-update", stop)
    assert rates == pytest.approx(t_fixup(0.005, 7, 12), rel=1e-12)


def test_by_yaml(rates: dict[int, float], toy_data: Path, tmp_path: Path) -> None:
    content = recipe(TranslationTask, toy_data, tmp_path / "run", {"_name": "pre_ln_transformer", **TINY})
    content["lr_scheduler"] = {"_name": "inverse_sqrt_without_warmup", "lr_decay_constant": 7}
    content["optimizer"] = {"_name": "radam", "adam_betas": "(0.9, 0.98)", "weight_decay": 0.1}
    run_hydra(tmp_path / "config", content, tmp_path / "run")
    assert rates == pytest.approx(t_fixup(0.005, 7, 6), rel=1e-12)


def scheduler(**values: Any) -> InverseSqrtWithoutWarmup:
    cfg = OmegaConf.merge(OmegaConf.structured(InverseSqrtWithoutWarmupConfig), {"lr": [0.1], **values})
    optimizer = FairseqOptimizer(cfg)
    optimizer._optimizer = SimpleNamespace(param_groups=[{"lr": 0.0}])
    return InverseSqrtWithoutWarmup(cfg, optimizer)


def test_mistakes() -> None:
    for constant in (0, -4000, math.inf):
        with pytest.raises(UserError, match=f"--lr-decay-constant must be above 0, not {constant}"):
            scheduler(lr_decay_constant=constant)
    with pytest.raises(UserError, match="takes one --lr, not 2"):
        scheduler(lr=[0.1, 0.2])
