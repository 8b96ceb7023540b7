"""RAdam: the closed form of both rules, every precision, resuming, and mistakes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.optim import OPTIMIZER_REGISTRY
from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_plugins.cli.main import main
from fairseq_plugins.errors import UserError
from fairseq_plugins.training import moments, radam
from fairseq_plugins.training.radam import FairseqRAdam, RAdam, RAdamConfig, step_factor
from tests import toy

BETAS = [(0.9, 0.98), (0.9, 0.99), (0.9, 0.995), (0.9, 0.999)]
LR = 0.01
RADAM = ("--optimizer", "radam", "--adam-betas", "(0.9, 0.98)")


def gradients(count: int, size: int = 5) -> list[Tensor]:
    return list(torch.randn(count, size, dtype=torch.float64, generator=torch.Generator().manual_seed(5)))


def closed_form(
    start: Tensor, grads: Sequence[Tensor], betas: tuple[float, float], eps: float = 1e-8, decay: float = 0.0
) -> list[Tensor]:
    """The values after each update, in float64, from the sums that the moments stand for."""
    one, two = betas
    p, values = start.clone(), []
    for t in range(1, len(grads) + 1):
        m = sum((1 - one) * one ** (t - i) * grads[i - 1] for i in range(1, t + 1))
        v = sum((1 - two) * two ** (t - i) * grads[i - 1] ** 2 for i in range(1, t + 1))
        longest = 2 / (1 - two) - 1
        rho = longest - 2 * t * two**t / (1 - two**t)
        p = p - LR * decay * p
        if rho >= 5:
            r = math.sqrt((rho - 4) / (longest - 4) * (rho - 2) / (longest - 2) * longest / rho)
            m_hat, v_hat = m / (1 - one**t), v / (1 - two**t)
            # eps stands beside sqrt(v), before the correction of its bias.
            p = p - LR * r * m_hat / (v_hat.sqrt() + eps / math.sqrt(1 - two**t))
        values.append(p.clone())
    return values


def updates(optimizer: torch.optim.Optimizer, p: Tensor, grads: Sequence[Tensor]) -> list[Tensor]:
    values = []
    for grad in grads:
        p.grad = grad.to(p.dtype)
        optimizer.step()
        values.append(p.detach().clone())
    return values


@pytest.mark.parametrize("betas", BETAS)
@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("eps", [1e-8, 0.1])
def test_closed_form(betas: tuple[float, float], decay: float, eps: float) -> None:
    start = torch.linspace(-1, 2, 5, dtype=torch.float64)
    p = nn.Parameter(start.clone())
    optimizer = RAdam([p], lr=LR, betas=betas, eps=eps, weight_decay=decay)
    expected = closed_form(start, gradients(12), betas, eps, decay)
    for found, wanted in zip(updates(optimizer, p, gradients(12)), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("betas", BETAS)
def test_the_sixth_update_takes_the_first_step(betas: tuple[float, float]) -> None:
    assert [step_factor(t, *betas) is None for t in range(1, 9)] == [True] * 5 + [False] * 3
    p = nn.Parameter(torch.linspace(-1, 2, 5))
    start = p.detach().clone()
    values = updates(RAdam([p], lr=LR, betas=betas), p, gradients(6))
    assert all(torch.equal(value, start) for value in values[:5])
    assert bool((values[5] != start).all())


def test_the_decay_runs_in_the_updates_without_a_step() -> None:
    p = nn.Parameter(torch.linspace(1, 2, 5, dtype=torch.float64))
    start = p.detach().clone()
    optimizer = RAdam([p], lr=LR, betas=(0.9, 0.98), weight_decay=0.5)
    for t, value in enumerate(updates(optimizer, p, gradients(5)), start=1):
        torch.testing.assert_close(value, start * (1 - LR * 0.5) ** t, rtol=1e-15, atol=0)


def test_late_steps_are_adam_s() -> None:
    """The rectification goes to 1, and so do the corrections of the bias."""
    assert step_factor(100_000, 0.9, 0.98) == pytest.approx(1, abs=1e-12)
    # By hand: rho = 99 - 12 * 0.885842 / 0.114158 = 5.8818, so r = 0.11552; corrections 0.33787 and 0.46856.
    assert step_factor(6, 0.9, 0.98) == pytest.approx(0.11552 * 0.33787 / 0.46856, rel=2e-4)


def test_pytorch_s_rule_differs_in_the_first_five_updates_only() -> None:
    """Where gradients do not depend on the parameters, all later steps are the same."""
    betas, grads = (0.9, 0.98), gradients(12)
    ours, theirs = (nn.Parameter(torch.zeros(5, dtype=torch.float64)) for _ in range(2))
    released = updates(built("released", ours).optimizer, ours, grads)
    pytorch = updates(built("pytorch", theirs).optimizer, theirs, grads)
    momentum = torch.zeros(5, dtype=torch.float64)
    for t, grad in enumerate(grads[:5], start=1):
        momentum = betas[0] * momentum + (1 - betas[0]) * grad
        before = pytorch[t - 2] if t > 1 else torch.zeros(5, dtype=torch.float64)
        torch.testing.assert_close(pytorch[t - 1], before - LR * momentum / (1 - betas[0] ** t), rtol=1e-12, atol=0)
        assert torch.equal(released[t - 1], torch.zeros(5, dtype=torch.float64))
    for t in range(5, 12):
        torch.testing.assert_close(pytorch[t] - pytorch[t - 1], released[t] - released[t - 1], rtol=1e-9, atol=1e-15)


def test_pytorch_s_rule_decays_apart_from_the_gradient() -> None:
    p = nn.Parameter(torch.linspace(1, 2, 5, dtype=torch.float64))
    start = p.detach().clone()
    values = updates(built("pytorch", p, weight_decay=0.5).optimizer, p, [torch.zeros(5)] * 3)
    torch.testing.assert_close(values[2], start * (1 - LR * 0.5) ** 3, rtol=1e-14, atol=0)


def configuration(**values: Any) -> Any:
    common = {"adam_betas": "(0.9, 0.98)", "lr": [LR], "memory_efficient_fp16": False, "memory_efficient_bf16": False}
    return OmegaConf.merge(OmegaConf.structured(RAdamConfig), {**common, **values})


def built(rule: str, p: nn.Parameter | None = None, **values: Any) -> FairseqRAdam:
    return FairseqRAdam(configuration(radam_rule=rule, **values), [p if p is not None else nn.Parameter(torch.ones(2))])


def test_it_is_fairseq_s_radam() -> None:
    assert OPTIMIZER_REGISTRY["radam"] is FairseqRAdam


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_its_state_in_float32(dtype: torch.dtype) -> None:
    """The moments are those of float32; the weights are rounded once an update."""
    start, grads = torch.linspace(0.5, 2, 5).to(dtype), [grad.to(dtype) for grad in gradients(9)]
    half, single = nn.Parameter(start.clone()), nn.Parameter(start.float())
    optimizers = RAdam([half], lr=LR, weight_decay=0.1), RAdam([single], lr=LR, weight_decay=0.1)
    for grad in grads:
        with torch.no_grad():
            single.copy_(half.float())
        for one, p in zip(optimizers, (half, single), strict=True):
            p.grad = grad.to(p.dtype)
            one.step()
        assert torch.equal(half, single.to(dtype))
    for name in ("exp_avg", "exp_avg_sq"):
        assert optimizers[0].state[half][name].dtype == torch.float32
        assert torch.equal(optimizers[0].state[half][name], optimizers[1].state[single][name])


def test_small_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (5, 7, 2, 30, 1)
    results = []
    for chunk in (RAdam.chunk_on_cpu, 8):
        monkeypatch.setattr(RAdam, "chunk_on_cpu", chunk)
        torch.manual_seed(2)
        params = [nn.Parameter(torch.randn(size)) for size in sizes]
        chunks = [[p.numel() for p in one] for one in moments.chunks(params, chunk)]
        assert chunks == ([[5], [7], [2], [30], [1]] if chunk == 8 else [[5, 7, 2, 30, 1]])
        optimizer = RAdam(params, lr=LR, weight_decay=0.1)
        for _ in range(8):
            for p in params:
                p.grad = torch.randn_like(p)
            optimizer.step()
        results.append(params)
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_a_parameter_without_a_gradient_stays_and_counts_its_own_updates() -> None:
    first, late = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = RAdam([first, late], lr=LR, weight_decay=0.5)
    for t in range(8):
        first.grad = torch.ones(3)
        late.grad = torch.ones(3) if t >= 6 else None
        optimizer.step()
        if t < 6:
            assert torch.equal(late, torch.ones(3))
    assert (optimizer.state[first]["step"], optimizer.state[late]["step"]) == (8, 2)
    torch.testing.assert_close(late.detach(), torch.full((3,), (1 - LR * 0.5) ** 2))


def test_a_sparse_gradient_is_refused() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    optimizer = RAdam(table.parameters())
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse"):
        optimizer.step()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"adam_betas": "0.9"}, r"--adam-betas takes a pair of numbers such as '\(0.9, 0.98\)', not '0.9'"),
        ({"adam_betas": "(0.9, 0.98, 0.99)"}, "takes a pair of numbers"),
        ({"adam_betas": "(0.9,"}, "takes a pair of numbers"),
        ({"adam_betas": "(0.9, x)"}, "takes a pair of numbers"),
        ({"adam_betas": "__import__('os')"}, "takes a pair of numbers"),
        ({"adam_betas": "(1.0, 0.98)"}, "at least 0 and below 1, the second above 2/3.*not 1 and 0.98"),
        ({"adam_betas": "(0.9, 1.0)"}, "not 0.9 and 1"),
        ({"adam_betas": [0.9, 0.6]}, "not 0.9 and 0.6"),
        ({"adam_betas": [-0.1, 0.9]}, "not -0.1 and 0.9"),
        ({"adam_eps": 0.0}, "--adam-eps must be above 0, not 0"),
        ({"weight_decay": -0.1}, "--weight-decay must be at least 0, not -0.1"),
        ({"weight_decay": math.nan}, "--weight-decay must be at least 0, not nan"),
        ({"radam_rule": "pytorh"}, r"unknown value of --radam-rule 'pytorh' \(did you mean 'pytorch'\?\)"),
        ({"radam_rule": "pytorch", "memory_efficient_fp16": True}, "state in half precision"),
        ({"radam_rule": "pytorch", "memory_efficient_bf16": True}, "state in half precision"),
    ],
)
def test_mistakes(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        FairseqRAdam(configuration(**values), [nn.Parameter(torch.ones(2))])


def test_mistakes_are_told_together() -> None:
    with pytest.raises(UserError) as caught:
        FairseqRAdam(configuration(adam_betas="(1, 2)", adam_eps=-1.0), [nn.Parameter(torch.ones(2))])
    assert len(caught.value.problems) == 2


def test_no_step_ever_below_the_least_beta2() -> None:
    """rho_t stays below 2 / (1 - beta2) - 1, which is 5 at 2/3; a little above it a step comes."""
    assert radam.LEAST_BETA2 == pytest.approx(2 / 3)
    assert all(step_factor(t, 0.9, 0.66) is None for t in range(1, 400))
    assert step_factor(400, 0.9, 0.67) is not None


@pytest.mark.parametrize("betas", [[0.9, 0.98], "[0.9, 0.98]", "(0.9, 0.98)", "0.9, 0.98"])
def test_ways_to_say_the_betas(betas: Any) -> None:
    built_from = FairseqRAdam(configuration(adam_betas=betas), [nn.Parameter(torch.ones(2))])
    assert built_from.optimizer.param_groups[0]["betas"] == (0.9, 0.98)


@pytest.mark.parametrize("rule", ["released", "pytorch"])
def test_block_momentum_averages_the_moments(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p = nn.Parameter(torch.ones(2))
    optimizer = built(rule, p)
    updates(optimizer.optimizer, p, [torch.ones(2)])
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    monkeypatch.setattr("torch.distributed.all_reduce", lambda value, op: value.add_(0.5))
    moments = {name: optimizer.optimizer.state[p][name].clone() for name in ("exp_avg", "exp_avg_sq")}
    optimizer.average_params()
    for name, value in moments.items():
        torch.testing.assert_close(optimizer.optimizer.state[p][name], value / 2 + 0.5)


def train(data: Path, directory: Path, updates: int, *flags: str, arch: str = "pre_ln_transformer") -> Any:
    flags = (*RADAM, "--max-update", str(updates), "--no-epoch-checkpoints", "--weight-decay", "0.1", *flags)
    return torch.load(toy.train_toy(data, directory, *flags, arch=arch), weights_only=True)


PRECISIONS = {
    "single": (),
    "bf16": ("--bf16",),
    "memory_efficient_bf16": ("--memory-efficient-bf16",),
    "memory_efficient_fp16": ("--memory-efficient-fp16", "--fp16-init-scale", "4"),
    "fp16": ("--fp16", "--fp16-no-flatten-grads", "--fp16-init-scale", "4"),
}


def tensors(state: Any) -> dict[str, Tensor]:
    """Weights and moments of a checkpoint."""
    moments = state["last_optimizer_state"]["state"]
    return {
        **state["model"],
        **{
            f"{number}.{name}": value
            for number, one in moments.items()
            for name, value in one.items()
            if isinstance(value, Tensor)
        },
    }


@pytest.mark.parametrize(
    ("rule", "precision"),
    [
        pytest.param("released", "single", marks=pytest.mark.slow),
        pytest.param("released", "memory_efficient_bf16", marks=pytest.mark.slow),
        ("released", "memory_efficient_fp16"),
        pytest.param("pytorch", "single", marks=pytest.mark.slow),
    ],
)
def test_a_resumed_training_is_the_uninterrupted_one(rule: str, precision: str, toy_data: Path, tmp_path: Path) -> None:
    """Stopped at the fourth update, before the first step, and at the eighth."""
    flags = (*PRECISIONS[precision], "--radam-rule", rule)
    whole = train(toy_data, tmp_path / "whole", 11, *flags)
    for stop in (4, 8):
        train(toy_data, tmp_path / "parts", stop, *flags)
    parts = train(toy_data, tmp_path / "parts", 11, *flags)
    assert tensors(whole).keys() == tensors(parts).keys()
    assert [name for name, value in tensors(whole).items() if not torch.equal(value, tensors(parts)[name])] == []
    states = parts["last_optimizer_state"]["state"].values()
    assert {value.dtype for one in states for value in one.values() if isinstance(value, Tensor)} == {torch.float32}
    steps = {int(one["step"]) for one in states}
    assert steps == {11}


@pytest.fixture(scope="module")
def single_and_still(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """The training in single precision, and its start."""
    directory = tmp_path_factory.mktemp("single")
    return tuple(train(toy_data, directory / str(updates), updates, "--dropout", "0") for updates in (20, 1))


@pytest.mark.parametrize("precision", [pytest.param("bf16", marks=pytest.mark.slow), "fp16", "memory_efficient_fp16"])
def test_half_precision_trains_as_single_does(
    precision: str, single_and_still: tuple[Any, Any], toy_data: Path, tmp_path: Path
) -> None:
    """The weights are one or two roundings apart, and the training has come several times as far.

    Not so under ``--memory-efficient-bf16``, where most steps are less than a weight's last digit.
    """
    single, still = single_and_still
    half = train(toy_data, tmp_path / "half", 20, "--dropout", "0", *PRECISIONS[precision])
    wanted, found, start = (
        torch.cat([value.float().flatten() for value in state["model"].values()]) for state in (single, half, still)
    )
    once = torch.finfo(torch.bfloat16 if precision == "bf16" else torch.float16).eps
    rounding = (once if precision == "bf16" else 2 * once) * float(wanted.norm())
    assert float((wanted - found).norm()) < rounding
    assert float((wanted - start).norm()) > 3 * rounding


def test_a_mistake_ends_in_one_line_and_code_2(
    toy_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [
        "train",
        str(toy_data),
        "--save-dir",
        str(tmp_path),
        "--arch",
        "pre_ln_transformer",
        *toy.TINY_MODEL,
        *toy.RECIPE,
        *RADAM[:2],
        "--adam-betas",
        "(0.9, 1.98)",
    ]
    assert main(command) == 2
    said = capfd.readouterr().err
    assert said.splitlines()[-1] == (
        "error: --adam-betas must be two numbers in brackets, each at least 0 and below 1, not (0.9, 1.98)"
    )
    assert "Traceback" not in said
