"""RAdam: the closed form. What every optimizer promises is in ``test_optimizers.py``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.errors import UserError
from fairseq_plugins.training.radam import LEAST_BETA2, RAdam, step_factor
from tests.training.optimizing import LR, built, gradients, updates

BETAS = [(0.9, 0.98), (0.9, 0.99), (0.9, 0.995), (0.9, 0.999)]


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


def test_closed_form() -> None:
    start = torch.linspace(-1, 2, 5, dtype=torch.float64)
    for betas, decay, eps in itertools.product(BETAS, (0.0, 0.3), (1e-8, 0.1)):
        p = nn.Parameter(start.clone())
        optimizer = RAdam([p], lr=LR, betas=betas, eps=eps, weight_decay=decay)
        expected = closed_form(start, gradients(12), betas, eps, decay)
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
