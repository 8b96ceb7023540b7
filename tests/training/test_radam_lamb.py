"""RAdam and LAMB: Algorithm 2 of either by hand and in closed form.

What every optimizer promises is in ``test_optimizers.py``.
"""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.optim import FP16Optimizer
from torch import Tensor, nn

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.messages import run_or_explain
from fairseq_plugins.training.lamb import Lamb
from fairseq_plugins.training.radam import LEAST_BETA2, RAdam, step_factor
from tests import models, toy
from tests.training.optimizing import LR, built, gradients, updates

Betas = tuple[float, float]
BETAS = [(0.9, 0.98), (0.9, 0.99), (0.9, 0.995), (0.9, 0.999)]


def rectified(start: Tensor, grads: list[Tensor], betas: Betas, eps: float = 1e-8, decay: float = 0.0) -> list[Tensor]:
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


def test_radam_in_closed_form() -> None:
    start = torch.linspace(-1, 2, 5, dtype=torch.float64)
    for betas, decay, eps in itertools.product(BETAS, (0.0, 0.3), (1e-8, 0.1)):
        p = nn.Parameter(start.clone())
        optimizer = RAdam([p], lr=LR, betas=betas, eps=eps, weight_decay=decay)
        expected = rectified(start, gradients(12), betas, eps, decay)
        torch.testing.assert_close(updates(optimizer, p, gradients(12)), expected, rtol=1e-13, atol=1e-13)


def test_late_steps_are_adam_s() -> None:
    """The rectification goes to 1, and so do the corrections of the bias."""
    assert step_factor(100_000, 0.9, 0.98) == pytest.approx(1, abs=1e-12)
    # By hand: rho = 99 - 12 * 0.885842 / 0.114158 = 5.8818, so r = 0.11552; corrections 0.33787 and 0.46856.
    assert step_factor(6, 0.9, 0.98) == pytest.approx(0.11552 * 0.33787 / 0.46856, rel=2e-4)


def test_no_step_ever_below_the_least_beta2() -> None:
    """rho_t stays below 2 / (1 - beta2) - 1, which is 5 at 2/3; a little above it a step comes."""
    assert pytest.approx(2 / 3) == LEAST_BETA2
    assert all(step_factor(t, 0.9, 0.66) is None for t in range(1, 400))
    assert step_factor(400, 0.9, 0.67) is not None
    with pytest.raises(UserError, match="the second must be at least 0.6667"):
        built("radam", adam_betas=(0.9, 0.6))


def closed_form(start: Tensor, grads: list[Tensor], betas: Betas, eps: float, decay: float) -> list[np.ndarray]:
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


def test_lamb_in_closed_form() -> None:
    start = torch.linspace(-1, 2, 5, dtype=torch.float64)
    every_betas = ((0.9, 0.999), (0.0, 0.5), (0.9, 0.0))
    for betas, decay, eps in itertools.product(every_betas, (0.0, 0.3), (1e-6, 0.1)):
        p = nn.Parameter(start.clone())
        optimizer = Lamb([p], lr=LR, betas=betas, eps=eps, weight_decay=decay)
        expected = closed_form(start, gradients(12), betas, eps, decay)
        for value, wanted in zip(updates(optimizer, p, gradients(12)), expected, strict=True):
            np.testing.assert_allclose(value.numpy(), wanted, rtol=1e-12, atol=1e-13, err_msg=f"{betas} {decay} {eps}")


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
    assert found == pytest.approx(LR * np.cumprod([1, 1 + LR, 1 - LR, 1 - LR]), rel=1e-7)


def test_flat_master_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq makes flat ones on the current GPU; here that is no GPU but the CPU, whose index is None."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    model = models.build("--arch", "rezero_transformer", seed=4).half()
    flags = ("--optimizer", "lamb", "--fp16", "--fp16-init-scale", "4")

    config = toy.parse_training(Path("nowhere"), tmp_path, *flags)
    with pytest.raises(UserError, match="Lamb does not support flat params, please set --fp16-no-flatten-grads"):
        run_or_explain(FP16Optimizer.build_optimizer, config, list(model.parameters()))
