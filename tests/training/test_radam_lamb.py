"""RAdam and LAMB: Algorithm 2 of either in closed form.

What every optimizer promises is in ``test_optimizers.py``.
"""

import itertools
import math
import operator
from collections.abc import Iterator
from pathlib import Path

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


def moments(grads: list[Tensor], betas: Betas) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Each update from 1 and its moments without bias, in float64, from the sums that they stand for."""
    one, two = betas
    for t in range(1, len(grads) + 1):
        ages, g = torch.arange(t, dtype=torch.float64).flip(0).unsqueeze(1), torch.stack(grads[:t])
        m, v = ((1 - one) * one**ages * g).sum(0), ((1 - two) * two**ages * g**2).sum(0)
        yield t, m / (1 - one**t), v / (1 - two**t)


def rectified(start: Tensor, grads: list[Tensor], betas: Betas, eps: float, decay: float) -> list[Tensor]:
    """The values after each update of RAdam."""
    two, p, values = betas[1], start, []
    for t, m, v in moments(grads, betas):
        longest = 2 / (1 - two) - 1
        rho = longest - 2 * t * two**t / (1 - two**t)
        p = p - LR * decay * p
        if rho >= 5:
            r = math.sqrt((rho - 4) / (longest - 4) * (rho - 2) / (longest - 2) * longest / rho)
            # eps is added to sqrt(v) before the correction of its bias.
            p = p - LR * r * m / (v.sqrt() + eps / math.sqrt(1 - two**t))
        values.append(p)
    return values


def test_no_step_ever_below_the_least_beta2() -> None:
    """rho_t stays below 2 / (1 - beta2) - 1, which is 5 at 2/3; a little above it a step comes."""
    assert pytest.approx(2 / 3) == LEAST_BETA2
    assert all(step_factor(t, 0.9, 0.66) is None for t in range(1, 400))
    assert step_factor(400, 0.9, 0.67) is not None
    with pytest.raises(UserError, match="the second must be at least 0.6667"):
        built("radam", adam_betas=(0.9, 0.6))


def closed_form(start: Tensor, grads: list[Tensor], betas: Betas, eps: float, decay: float) -> list[Tensor]:
    """The values after each update of LAMB."""
    x, values = start, []
    for _, m, v in moments(grads, betas):
        u = m / (v.sqrt() + eps) + decay * x
        x = x - LR * x.norm() / u.norm() * u
        values.append(x)
    return values


CLOSED_FORMS = (
    (RAdam, rectified, BETAS, (1e-8, 0.1), 1e-13),
    (Lamb, closed_form, ((0.9, 0.999), (0.0, 0.5), (0.9, 0.0)), (1e-6, 0.1), 1e-12),
)


@pytest.mark.parametrize(("kind", "values", "every_betas", "every_eps", "rtol"), CLOSED_FORMS)
def test_updates_in_closed_form(kind, values, every_betas, every_eps, rtol) -> None:
    start = torch.linspace(-1, 2, 5, dtype=torch.float64)
    for betas, decay, eps in itertools.product(every_betas, (0.0, 0.3), every_eps):
        p = nn.Parameter(start.clone())
        optimizer = kind([p], lr=LR, betas=betas, eps=eps, weight_decay=decay)
        expected = values(start, gradients(12), betas, eps, decay)
        torch.testing.assert_close(updates(optimizer, p, gradients(12)), expected, rtol=rtol, atol=1e-13)


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
    """A number like ReZero's alpha: the first step is the rate, every later one that share of the number."""
    p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    grads = [torch.full((1,), sign) for sign in (-1.0, -1.0, 30.0, 30.0)]
    found = [float(value) for value in updates(Lamb([p], lr=LR, betas=(0.0, 0.0)), p, grads)]
    assert found == pytest.approx([*itertools.accumulate((LR, 1 + LR, 1 - LR, 1 - LR), operator.mul)], rel=1e-7)


def test_flat_master_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq makes flat ones on the current GPU; here that is no GPU but the CPU, whose index is None."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    model = models.build("--arch", "rezero_transformer", seed=4).half()
    flags = ("--optimizer", "lamb", "--fp16", "--fp16-init-scale", "4")

    config = toy.parse_training(Path("nowhere"), tmp_path, *flags)
    with pytest.raises(UserError, match="Lamb does not support flat params, please set --fp16-no-flatten-grads"):
        run_or_explain(FP16Optimizer.build_optimizer, config, list(model.parameters()))
