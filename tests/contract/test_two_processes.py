"""Two processes, each with half a batch, make the step that one process makes with the whole batch."""

import logging
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.models.distributed_fairseq_model import DistributedFairseqModel
from torch import Tensor, nn

from fairseq_plugins.core.method import Axis
from fairseq_plugins.methods.admin import AdminResidual
from tests import models
from tests.representatives import for_each, slow_but, stored
from tests.rounding import assert_same_to_rounding

States = dict[str, dict[str, Tensor]]
WORLD_SIZE = 2
LEARNING_RATE = 0.1
BACKENDS = ("pytorch_ddp", "legacy_ddp")
HALF = 3


def model_and_batch(case: str) -> tuple[nn.Module, models.Batch, int]:
    """The model of a case without dropout, slightly off its start; the batch for both, and how many tokens it has."""
    model = models.build(*models.CASES[case], "--dropout", "0", "--word-dropout", "0")
    models.perturb(model)
    data = models.batch(sentences=WORLD_SIZE * HALF)
    return model.train(), data, int(data.target.ne(models.dictionary().pad()).sum())


def step(model: nn.Module, scale: float) -> dict[str, Tensor]:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(LEARNING_RATE * scale * parameter.grad)
    return {name: value.clone() for name, value in model.state_dict().items()}


def distributed_step(case: str, backend: str, rank: int) -> dict[str, Tensor]:
    """A step as in fairseq's trainer: summed losses, gradients averaged over processes, then scaled to a token."""
    model, data, tokens = model_and_batch(case)
    settings = DistributedTrainingConfig(ddp_backend=backend, heartbeat_timeout=-1, tpu=False)
    parallel = DistributedFairseqModel(settings, model, dist.group.WORLD, torch.device("cpu"))
    models.loss_of(parallel, data.rows(rank * HALF, (rank + 1) * HALF)).backward()
    if hasattr(parallel, "all_reduce_grads"):
        parallel.all_reduce_grads()
    return step(model, WORLD_SIZE / tokens)


def work(rank: int, directory: str, pairs: list[tuple[str, str]]) -> None:
    """The whole life of process ``rank``; writes ``<rank>.pt``: state dicts by the ``pairs`` of case and backend."""
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/meeting", rank=rank, world_size=WORLD_SIZE)
    found = {f"{case} {backend}": distributed_step(case, backend, rank) for case, backend in pairs}
    torch.save(found, Path(directory) / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[States]:
    """The state of either process after its step, by case and backend; the processes start once for all cases."""
    tests = [item for item in request.session.items if item.fspath == request.node.fspath]
    pairs = [(item.callspec.params["case"], item.callspec.params["backend"]) for item in tests]
    directory: Path = tmp_path_factory.mktemp("ranks")
    arguments = (str(directory), pairs)
    # Forked, so that neither imports fairseq anew, which takes longer than all the steps.
    torch.multiprocessing.start_processes(work, arguments, nprocs=WORLD_SIZE, start_method="fork")
    return [torch.load(directory / f"{rank}.pt", weights_only=True) for rank in range(WORLD_SIZE)]


@pytest.mark.parametrize("backend", slow_but(BACKENDS[:1], BACKENDS))
@for_each("case", models.CASES, stored, Axis.LAYER_AGGREGATION)
def test_two_processes_equal_one(case: str, backend: str, ranks: list[States]) -> None:
    first, second = (states[f"{case} {backend}"] for states in ranks)
    model, data, tokens = model_and_batch(case)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    models.loss_of(model, data).backward()
    expected = step(model, 1 / tokens)
    assert first.keys() == expected.keys()
    parameters = dict(model.named_parameters())
    for name, value in expected.items():
        assert torch.equal(first[name], second[name]), name
        # The measurement sums over the tokens of either half in another order; 1e-5 is its own promise.
        share = 1e-6 if name in parameters else 1e-5
        assert_same_to_rounding(first[name], value, share, msg=name)
    assert max(float((value - before[name]).abs().max()) for name, value in expected.items()) > 1e-2
    measured = [module for module in model.modules() if isinstance(module, AdminResidual)]
    assert all(float(module.calibrated) == 1 for module in measured)
