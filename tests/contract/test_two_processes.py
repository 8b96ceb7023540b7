"""Two processes, each with half a batch, make the step that one process makes with the whole batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from fairseq_plugins.core.method import Axis
from fairseq_plugins.methods.admin import AdminResidual
from tests import models
from tests.contract import two_processes
from tests.representatives import for_each, stored
from tests.rounding import assert_same_to_rounding

States = dict[str, dict[str, Tensor]]


@pytest.fixture(scope="module")
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[States]:
    """What either process has after its step, by case and backend; the processes start once for all that are tested."""
    tests = [item for item in request.session.items if item.fspath == request.node.fspath]
    pairs = [(item.callspec.params["case"], item.callspec.params["backend"]) for item in tests]
    directory: Path = tmp_path_factory.mktemp("ranks")
    arguments = (str(directory), pairs)
    # Forked, so that neither imports fairseq anew, which takes longer than all the steps.
    torch.multiprocessing.start_processes(
        two_processes.work, arguments, nprocs=two_processes.WORLD_SIZE, start_method="fork"
    )
    return [torch.load(directory / f"{rank}.pt", weights_only=True) for rank in range(two_processes.WORLD_SIZE)]


@pytest.mark.parametrize("backend", two_processes.BACKENDS)
@for_each("case", models.CASES, stored, Axis.HISTORY)
def test_two_processes_equal_one(case: str, backend: str, ranks: list[States]) -> None:
    first, second = (states[f"{case} {backend}"] for states in ranks)
    model, data = two_processes.model_and_batch(case)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    models.loss_of(model, data).backward()
    expected = two_processes.step(model, 1 / two_processes.tokens(data))
    assert first.keys() == expected.keys()
    parameters = dict(model.named_parameters())
    for name, value in expected.items():
        assert torch.equal(first[name], second[name]), name
        # What is measured is a sum over the tokens of either half, made in another order; 1e-5 is its own promise.
        share = 1e-6 if name in parameters else 1e-5
        assert_same_to_rounding(first[name], value, share, msg=name)
    assert max(float((value - before[name]).abs().max()) for name, value in expected.items()) > 1e-2
    measured = [module for module in model.modules() if isinstance(module, AdminResidual)]
    assert all(float(module.calibrated) == 1 for module in measured)
