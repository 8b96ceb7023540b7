"""Solvers on equations whose solution is known, and what the published coefficients are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fairseq_plugins.core.solver import Solver
from fairseq_plugins.methods.ode import RungeKutta
from fairseq_plugins.methods.pcformer import PredictorCorrector

STEP = 0.3
"""A layer x + STEP x is a step of Euler's method for y' = y, whose solution is exp."""


def next_state(solver: Solver) -> float:
    start = torch.ones(1, 1, 1, dtype=torch.float64)
    return float(solver.double()(lambda x: x + STEP * x, start, [start]).detach())


def test_coefficients_start_as_published() -> None:
    """Both at 1, or a moving average: 1/4 and 1/2 of order 2, 1/16, 1/8, 1/4 and 1/2 of order 4."""
    assert next_state(RungeKutta(1, 2, "trained", whole=False)) == pytest.approx(1 + STEP + STEP * (1 + STEP))
    heun = STEP / 4 + STEP * (1 + STEP) / 2
    second = STEP * (1 + STEP / 2)
    third = STEP * (1 + second / 2)
    fourth = STEP / 16 + second / 8 + third / 4 + STEP * (1 + third) / 2
    for order, added in ((2, heun), (4, fourth)):
        solver = PredictorCorrector(1, 1, order, whole=False).double()
        predicted = solver.predict(lambda x: x + STEP * x, torch.ones(1, 1, 1, dtype=torch.float64))
        assert float(predicted.detach()) == pytest.approx(1 + added)


def test_the_corrector_starts_as_an_average_of_all_states() -> None:
    """Layer 2 evaluates at the mean of the embedding, the first state and the prediction, and returns another mean."""
    solver = PredictorCorrector(layers=2, width=4, order=2, whole=False).double()
    draw = torch.Generator().manual_seed(0)
    embedding, second = (torch.randn(1, 1, 4, dtype=torch.float64, generator=draw) for _ in range(2))
    seen: list[Tensor] = []

    def layer(x: Tensor) -> Tensor:
        seen.append(x)
        return x.flip(-1)

    past = [embedding, second]
    after = solver(layer, second, past)
    change = second.flip(-1) - second
    there = second + change
    prediction = second + change / 4 + (there.flip(-1) - there) / 2
    normed = torch.nn.functional.layer_norm(prediction, (4,))
    torch.testing.assert_close(seen[-1], (embedding + second + normed) / 3)
    state = torch.nn.functional.layer_norm(seen[-1].flip(-1), (4,))
    torch.testing.assert_close(past[2], state)
    torch.testing.assert_close(after, (embedding + second + state) / 3)
