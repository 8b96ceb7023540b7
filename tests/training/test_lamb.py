"""LAMB: Algorithm 2 by hand and in closed form, norms that are zero, every precision, resuming, and mistakes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.optim import OPTIMIZER_REGISTRY, FP16Optimizer
from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_plugins.errors import UserError
from fairseq_plugins.training.lamb import FairseqLamb, Lamb, LambConfig
from tests import models, toy
from tests.config.test_hydra import TINY, read, recipe, run_hydra

LR = 0.01
LAMB = ("--optimizer", "lamb", "--lamb-betas", "(0.9, 0.98)")


def updates(optimizer: torch.optim.Optimizer, p: nn.Parameter, grads: Sequence[Tensor]) -> list[Tensor]:
    values = []
    for grad in grads:
        p.grad = grad.to(p.dtype)
        optimizer.step()
        values.append(p.detach().clone())
    return values


def gradients(count: int, size: int = 5) -> list[Tensor]:
    return list(torch.randn(count, size, dtype=torch.float64, generator=torch.Generator().manual_seed(5)))


def closed_form(
    start: Tensor, grads: Sequence[Tensor], betas: tuple[float, float], eps: float, decay: float
) -> list[np.ndarray]:
    """The values after each update, from the sums that the moments stand for; in NumPy."""
    one, two = betas
    g, x, values = np.array([grad.numpy() for grad in grads]), start.numpy().copy(), []
    for t in range(1, len(g) + 1):
        ages = np.arange(t)[::-1, None]
        m = ((1 - one) * one**ages * g[:t]).sum(0) / (1 - one**t)
        v = ((1 - two) * two**ages * g[:t] ** 2).sum(0) / (1 - two**t)
        u = m / (np.sqrt(v) + eps) + decay * x
        x = x - LR * np.linalg.norm(x) / np.linalg.norm(u) * u
        values.append(x.copy())
    return values


def test_the_first_step_by_hand() -> None:
    """After the corrections m = g and v = g^2, so that r = (1, -1); with the decay u = (1.3, -0.6); |x| = 5."""
    p = nn.Parameter(torch.tensor([3.0, 4.0], dtype=torch.float64))
    (found,) = updates(Lamb([p], lr=0.1, weight_decay=0.1, eps=1e-30), p, [torch.tensor([2.0, -7.0])])
    length = math.sqrt(1.3**2 + 0.6**2)
    wanted = torch.tensor([3 - 0.1 * 5 * 1.3 / length, 4 + 0.1 * 5 * 0.6 / length], dtype=torch.float64)
    torch.testing.assert_close(found, wanted, rtol=1e-14, atol=0)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.5), (0.9, 0.0)])
@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("eps", [1e-6, 0.1])
def test_closed_form(betas: tuple[float, float], decay: float, eps: float) -> None:
    start = torch.linspace(-1, 2, 5, dtype=torch.float64)
    p = nn.Parameter(start.clone())
    optimizer = Lamb([p], lr=LR, betas=betas, eps=eps, weight_decay=decay)
    expected = closed_form(start, gradients(12), betas, eps, decay)
    for found, wanted in zip(updates(optimizer, p, gradients(12)), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12, atol=1e-13)


def test_a_tensor_moves_by_the_rate_times_its_norm() -> None:
    """Whatever the size of the gradient; each tensor by its own norm."""
    torch.manual_seed(1)
    params = [nn.Parameter(torch.randn(size) * scale) for size, scale in (((4, 3), 1.0), ((7,), 50.0), ((2, 2), 1e-3))]
    optimizer = Lamb(params, lr=LR, weight_decay=0.1)
    for scale in (1.0, 1e-6, 1e6):
        before = [p.detach().clone() for p in params]
        for p in params:
            p.grad = scale * torch.randn_like(p)
        optimizer.step()
        for p, old in zip(params, before, strict=True):
            assert float((p - old).norm() / old.norm()) == pytest.approx(LR, rel=1e-4)


def test_a_tensor_that_is_zero_leaves_it_by_adam_s_step() -> None:
    p = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    values = updates(Lamb([p], lr=LR, eps=1e-30, weight_decay=0.5), p, [torch.tensor([2.0, -3.0, 0.1])] * 2)
    torch.testing.assert_close(values[0], torch.tensor([-LR, LR, -LR], dtype=torch.float64), rtol=1e-14, atol=0)
    moved = values[1] - values[0]
    assert float(moved.norm()) == pytest.approx(LR * float(values[0].norm()), rel=1e-12)


def test_a_step_of_zero_is_none() -> None:
    p = nn.Parameter(torch.ones(3))
    (found,) = updates(Lamb([p], lr=LR), p, [torch.zeros(3)])
    assert torch.equal(found, torch.ones(3))


def test_a_single_number_keeps_its_sign() -> None:
    """As ReZero's alpha: the first step is the rate, every later one that share of the number."""
    p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    grads = [torch.full((1,), sign) for sign in (-1.0, -1.0, 30.0, 30.0)]
    found = [float(value) for value in updates(Lamb([p], lr=LR, betas=(0.0, 0.0)), p, grads)]
    assert found == pytest.approx(
        [LR, LR * (1 + LR), LR * (1 + LR) * (1 - LR), LR * (1 + LR) * (1 - LR) ** 2], rel=1e-7
    )


def test_a_group_without_decay_is_scaled_all_the_same() -> None:
    decayed, kept = (nn.Parameter(torch.full((4,), 2.0, dtype=torch.float64)) for _ in range(2))
    groups = [{"params": [decayed]}, {"params": [kept], "weight_decay": 0.0}]
    optimizer = Lamb(groups, lr=LR, weight_decay=0.5, eps=1e-30)
    grad = torch.tensor([1.0, -1.0, 1.0, -1.0])
    for p in (decayed, kept):
        p.grad = grad.to(p.dtype)
    optimizer.step()
    torch.testing.assert_close(kept.detach(), 2 - LR * 4 / 2 * grad.double(), rtol=1e-14, atol=0)
    # u = (2, 0, 2, 0), whose norm is 2.83
    wanted = 2 - LR * 4 / math.sqrt(8) * torch.tensor([2.0, 0.0, 2.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(decayed.detach(), wanted, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_its_state_and_norms_in_float32(dtype: torch.dtype) -> None:
    """The norm of 70,000 hundreds, 26,457, has a square that float16 cannot hold."""
    start, grads = torch.full((70_000,), 100.0).to(dtype), [torch.ones(70_000, dtype=dtype)] * 3
    half, single = nn.Parameter(start.clone()), nn.Parameter(start.float())
    optimizers = Lamb([half], lr=LR, weight_decay=0.1), Lamb([single], lr=LR, weight_decay=0.1)
    for grad in grads:
        with torch.no_grad():
            single.copy_(half.float())
        for one, p in zip(optimizers, (half, single), strict=True):
            p.grad = grad.to(p.dtype)
            one.step()
        assert torch.equal(half, single.to(dtype))
        assert bool((half < start).all())
    for name in ("exp_avg", "exp_avg_sq"):
        assert optimizers[0].state[half][name].dtype == torch.float32
        assert torch.equal(optimizers[0].state[half][name], optimizers[1].state[single][name])


def test_small_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for chunk in (Lamb.chunk_on_cpu, 8):
        monkeypatch.setattr(Lamb, "chunk_on_cpu", chunk)
        torch.manual_seed(2)
        params = [nn.Parameter(torch.randn(size)) for size in (5, 7, 2, 30, 1)]
        optimizer = Lamb(params, lr=LR, weight_decay=0.1)
        for _ in range(4):
            for p in params:
                p.grad = torch.randn_like(p)
            optimizer.step()
        results.append(params)
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_it_takes_the_place_of_fairseq_s_lamb() -> None:
    """With its flags and their defaults, and a form in YAML, which fairseq's has not."""
    assert OPTIMIZER_REGISTRY["lamb"] is FairseqLamb
    config = toy.parse_training(Path("nowhere"), Path("nowhere"), "--optimizer", "lamb")
    assert config.optimizer._name == "lamb"
    assert (config.optimizer.lamb_betas, config.optimizer.lamb_eps, config.optimizer.weight_decay) == (
        "(0.9, 0.999)",
        1e-8,
        0.0,
    )


def configuration(**values: Any) -> Any:
    common = dict.fromkeys(("fp16", "bf16", "memory_efficient_fp16", "fp16_no_flatten_grads"), False)
    return OmegaConf.merge(OmegaConf.structured(LambConfig), {**common, "lr": [LR], **values})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lamb_betas": "0.9"}, r"--lamb-betas takes a pair of numbers such as '\(0.9, 0.98\)', not '0.9'"),
        ({"lamb_betas": "(1.0, 0.98)"}, "--lamb-betas must both be at least 0 and below 1; not 1 and 0.98"),
        ({"lamb_betas": [0.9, 1.0]}, "not 0.9 and 1"),
        ({"lamb_betas": [0.9, -0.1]}, "not 0.9 and -0.1"),
        ({"lamb_eps": 0.0}, "--lamb-eps must be above 0, not 0"),
        ({"weight_decay": -0.1}, "--weight-decay must be at least 0, not -0.1"),
        ({"fp16": True}, "add --fp16-no-flatten-grads, or use --memory-efficient-fp16"),
    ],
)
def test_mistakes(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        FairseqLamb(configuration(**values), [nn.Parameter(torch.ones(2))])
    assert len(caught.value.problems) == 1


def test_flat_master_weights_are_refused_and_separate_ones_have_their_own_norms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fairseq makes flat ones on the current GPU; here that is no GPU but the CPU, whose index is None."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    model = models.build("--arch", "rezero_transformer", seed=4).half()
    flags = (*LAMB, "--fp16", "--fp16-init-scale", "4")

    def wrapped(*more: str) -> FP16Optimizer:
        config = toy.parse_training(Path("nowhere"), tmp_path, *flags, *more)
        return FP16Optimizer.build_optimizer(config, list(model.parameters()))

    with pytest.raises(UserError, match="--fp16 flattens the master weights"):
        wrapped()
    optimizer = wrapped("--fp16-no-flatten-grads")
    optimizer.set_lr(LR)
    optimizer.zero_grad()
    before = [p.detach().clone() for p in optimizer.fp32_params]
    optimizer.backward(sum(p.float().pow(2).sum() + p.float().sum() for p in model.parameters()))
    optimizer.clip_grad_norm(0.0)
    optimizer.step()
    moved = [
        float((p - old).norm() / old.norm())
        for p, old in zip(optimizer.fp32_params, before, strict=True)
        if float(old.norm()) > 0
    ]
    assert len(moved) > 20
    assert moved == pytest.approx([LR] * len(moved), rel=1e-3)


def train(data: Path, directory: Path, updates: int, *flags: str) -> Any:
    flags = (*LAMB, "--max-update", str(updates), "--no-epoch-checkpoints", "--weight-decay", "0.1", *flags)
    return torch.load(toy.train_toy(data, directory, *flags, arch="rezero_transformer"), weights_only=True)


PRECISIONS = {
    "single": (),
    "bf16": ("--bf16",),
    "memory_efficient_bf16": ("--memory-efficient-bf16",),
    "memory_efficient_fp16": ("--memory-efficient-fp16", "--fp16-init-scale", "4"),
    "fp16": ("--fp16", "--fp16-no-flatten-grads", "--fp16-init-scale", "4"),
}


EACH_OPTIMIZER = [
    pytest.param(name, marks=[] if name == "memory_efficient_fp16" else [pytest.mark.slow]) for name in PRECISIONS
]
"""The fast tests see the one with the most of its own: no master weights, and a scale of the loss."""


@pytest.mark.parametrize("precision", EACH_OPTIMIZER)
def test_a_resumed_training_is_the_uninterrupted_one(precision: str, toy_data: Path, tmp_path: Path) -> None:
    """With two groups of parameters."""
    flags = (*PRECISIONS[precision], "--no-weight-decay-on", "residual")
    whole = train(toy_data, tmp_path / "whole", 9, *flags)
    for stop in (4, 9):
        parts = train(toy_data, tmp_path / "parts", stop, *flags)
    states = [one["last_optimizer_state"]["state"] for one in (whole, parts)]
    assert states[0].keys() == states[1].keys()
    assert {int(one["step"]) for one in states[0].values()} == {int(one["step"]) for one in states[1].values()} == {9}
    assert {one[name].dtype for one in states[1].values() for name in ("exp_avg", "exp_avg_sq")} == {torch.float32}
    groups = parts["last_optimizer_state"]["param_groups"]
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert [name for name, value in whole["model"].items() if not torch.equal(value, parts["model"][name])] == []
    for number, state in states[0].items():
        assert torch.equal(state["exp_avg_sq"], states[1][number]["exp_avg_sq"])


WITHOUT_DROPOUT = ("--dropout", "0", "--lr", "0.02")


@pytest.fixture(scope="module")
def single_and_still(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """The training in single precision, and its start."""
    directory = tmp_path_factory.mktemp("single")
    return tuple(train(toy_data, directory / str(updates), updates, *WITHOUT_DROPOUT) for updates in (20, 1))


@pytest.mark.parametrize(
    "precision", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("bf16", "memory_efficient_fp16")), "fp16"]
)
def test_half_precision_trains_as_single_does(
    precision: str, single_and_still: tuple[Any, Any], toy_data: Path, tmp_path: Path
) -> None:
    """The weights are some roundings apart, and the training has come several times as far."""
    single, still = single_and_still
    half = train(toy_data, tmp_path / "half", 20, *WITHOUT_DROPOUT, *PRECISIONS[precision])
    wanted, found, start = (
        torch.cat([value.float().flatten() for value in state["model"].values()]) for state in (single, half, still)
    )
    apart, far = float((wanted - found).norm()), float((wanted - start).norm())
    assert 8 * apart < far


def test_by_yaml(toy_data: Path, tmp_path: Path) -> None:
    content = recipe(toy_data, tmp_path / "run", {"_name": "rezero_transformer", **TINY})
    content["optimizer"] = {"_name": "lamb", "lamb_betas": "(0.8, 0.9)", "lamb_eps": 1e-6, "weight_decay": 0.01}
    run_hydra(read(tmp_path / "config", content))
    state = torch.load(tmp_path / "run" / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["optimizer_name"] == "FairseqLamb"
    (group,) = state["last_optimizer_state"]["param_groups"]
    assert (tuple(group["betas"]), group["eps"], group["weight_decay"]) == ((0.8, 0.9), 1e-6, 0.01)
    alphas = {float(value) for name, value in state["model"].items() if name.endswith(".alpha")}
    assert 0.0 not in alphas
