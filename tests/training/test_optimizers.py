"""Promises of every optimizer of the package: state, precisions, a change of optimizer; learning rates of trainings.

That a resumed training is the uninterrupted one is in ``tests/faults/test_exact_resume.py``.
"""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.tasks.translation import TranslationTask
from torch import nn

from fairseq_plugins.training import adam_base
from fairseq_plugins.training.adam_base import MomentOptimizer
from fairseq_plugins.training.fast_adam import Adam, FusedAdam
from fairseq_plugins.training.lamb import Lamb
from fairseq_plugins.training.radam import RAdam
from tests import toy
from tests.config.test_hydra import TINY, recipe, run_hydra
from tests.faults.exact import differences
from tests.refusals import refused
from tests.training.optimizing import LR, built, updates

KINDS: list[type[MomentOptimizer]] = [RAdam, Lamb, Adam, FusedAdam]
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("size", "scale"), [(5, 1.0), (70_000, 100.0)])
def test_half_precision_is_updated_in_float32(kind, dtype, size, scale):
    """The moments are those of float32, and weights are rounded once an update.

    The norm of 70,000 hundreds, 26,457, has a square that float16 cannot hold.
    """
    draw = torch.Generator().manual_seed(0)
    start = (scale * (1 + torch.rand(size, generator=draw))).to(dtype)
    half, single = nn.Parameter(start.clone()), nn.Parameter(start.float())
    rate = 0.1 if kind is Lamb else 0.1 * scale
    optimizers = kind([half], lr=rate, weight_decay=0.1 / scale), kind([single], lr=rate, weight_decay=0.1 / scale)
    for _ in range(9):
        grad = torch.randn(size, generator=draw).to(dtype)
        with torch.no_grad():
            single.copy_(half.float())
        for one, p in zip(optimizers, (half, single), strict=True):
            p.grad = grad.to(p.dtype)
            one.step()
        assert torch.equal(half, single.to(dtype))
    assert not torch.equal(half, start)
    for name in ("exp_avg", "exp_avg_sq"):
        assert optimizers[0].state[half][name].dtype == torch.float32
        assert torch.equal(optimizers[0].state[half][name], optimizers[1].state[single][name])


@every_kind
def test_small_chunks_change_nothing(kind: type[MomentOptimizer], monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for chunk in (kind.chunk_on_cpu, 8):
        monkeypatch.setattr(kind, "chunk_on_cpu", chunk)
        torch.manual_seed(2)
        params = [nn.Parameter(torch.randn(size)) for size in (5, 7, 2, 30, 1)]
        chunks = [[p.numel() for p in one] for one in adam_base.chunks(params, chunk)]
        assert chunks == ([[5], [7], [2], [30], [1]] if chunk == 8 else [[5, 7, 2, 30, 1]])
        optimizer = kind(params, lr=LR, weight_decay=0.1)
        for _ in range(8):
            for p in params:
                p.grad = torch.randn_like(p)
            optimizer.step()
        results.append(params)
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@every_kind
def test_a_parameter_without_a_gradient_stays_and_counts_its_own_updates(kind: type[MomentOptimizer]) -> None:
    first, late = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = kind([first, late], lr=LR, weight_decay=0.5)
    for update in range(8):
        first.grad = torch.ones(3)
        late.grad = torch.ones(3) if update >= 6 else None
        optimizer.step()
        assert torch.equal(late, torch.ones(3)) == (update < 6)
    assert (optimizer.state[first]["step"], optimizer.state[late]["step"]) == (8, 2)


@every_kind
def test_gradients_that_are_kept_are_not_read_from_the_parameters(kind: type[MomentOptimizer]) -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = kind([weight], lr=LR)
    optimizer.kept = [torch.ones(3)]
    optimizer.step()
    assert bool((optimizer.state[weight]["exp_avg"] > 0).all())


def replaced_one_after_the_other(kind: type[MomentOptimizer]) -> Any:
    """Weights and state after updates between which everything that an update reads is replaced."""
    torch.manual_seed(3)
    params = [nn.Parameter(torch.randn(size)) for size in (4, 5, 6)]
    optimizer = kind(params[:2], lr=LR, weight_decay=0.1)
    saved: dict[str, Any] = {}

    def update() -> None:
        for p in params:
            p.grad = torch.randn_like(p)
        optimizer.step()

    def replace() -> None:
        params[0] = optimizer.param_groups[0]["params"][0] = nn.Parameter(torch.randn(4))

    for change in (
        lambda: saved.update(copy.deepcopy(optimizer.state_dict())),
        lambda: optimizer.load_state_dict(saved),
        lambda: optimizer.state[params[1]].update(exp_avg=torch.ones(5)),
        lambda: optimizer.state.update({params[0]: copy.deepcopy(optimizer.state[params[0]] | {"step": 9})}),
        lambda: optimizer.state[params[1]].update(step=3),
        lambda: optimizer.add_param_group({"params": params[2:], "lr": 2 * LR}),
        replace,
    ):
        update()
        change()
    update()
    return [p.data for p in params], [optimizer.state[p] for p in params]


@every_kind
def test_what_is_replaced_between_updates_counts(kind: type[MomentOptimizer], monkeypatch: pytest.MonkeyPatch) -> None:
    kept = replaced_one_after_the_other(kind)
    monkeypatch.setattr(adam_base, "same", lambda *_: False)  # arranges the parameters anew for each update
    assert differences(kept, replaced_one_after_the_other(kind)) == []


@pytest.mark.parametrize("name", ["lamb", "radam"])
def test_block_momentum_averages_the_moments(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p = nn.Parameter(torch.ones(2))
    optimizer = built(name, p)
    updates(optimizer.optimizer, p, [torch.ones(2)])
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    monkeypatch.setattr("torch.distributed.all_reduce", lambda value, op: value.add_(0.5))
    means = {name: optimizer.optimizer.state[p][name].clone() for name in ("exp_avg", "exp_avg_sq")}
    optimizer.average_params()
    for name, value in means.items():
        torch.testing.assert_close(optimizer.optimizer.state[p][name], value / 2 + 0.5)


def test_ways_to_say_the_betas() -> None:
    for betas in ([0.9, 0.98], "[0.9, 0.98]", "(0.9, 0.98)", "0.9, 0.98"):
        for optimizer in (built("radam", adam_betas=betas), built("lamb", lamb_betas=betas)):
            assert optimizer.optimizer.param_groups[0]["betas"] == (0.9, 0.98)


def test_a_training_changes_from_adam_and_back(toy_data: Path, tmp_path: Path) -> None:
    """The checkpoint is adam's bit for bit, and names it."""

    def train(number: int, optimizer: str) -> Any:
        flags = f"--optimizer {optimizer} --max-update {number} --no-epoch-checkpoints --weight-decay 0.1".split()
        return torch.load(toy.train_toy(toy_data, tmp_path, *flags), weights_only=True)

    for number, optimizer in ((2, "adam"), (4, "foreach_adam"), (6, "adam")):
        found = train(number, optimizer)
    assert train(7, "fused_adam")["optimizer_history"][-1]["num_updates"] == 7
    (tmp_path / "checkpoint_last.pt").unlink()
    wanted = train(6, "adam")
    for entry in ("model", "last_optimizer_state"):
        assert differences(found[entry], wanted[entry]) == []
    names = [one["optimizer_history"][-1]["optimizer_name"] for one in (found, wanted)]
    assert names[0] == names[1]


def t_fixup(lr: float, constant: float, updates: int) -> dict[int, float]:
    return {n: lr * math.sqrt(constant / (constant + n)) for n in range(updates)}


@pytest.mark.parametrize("flags", ["", "--update-freq 3"])
def test_falls_from_the_first_update_on(flags: str, rates: dict[int, float], toy_data: Path, tmp_path: Path) -> None:
    """Three epochs with accumulated gradients, more than one without."""
    words = f"--lr-scheduler inverse_sqrt_without_warmup --lr-decay-constant 7 --lr 0.004 --max-update 12 {flags}"
    toy.train_toy(toy_data, tmp_path, *words.split(), "--no-save")
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
