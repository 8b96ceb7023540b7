"""The pretended GPU shows what it is there to show: faults that a CPU hides are planted, and each is caught."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fairseq_plugins.core.layers import EncoderLayer
from fairseq_plugins.methods.admin import AdminResidual
from tests import models
from tests.gpu.faults import Fault, planted, reads, sends
from tests.gpu.pretend import SEEN, on_gpu, pretended

LAYERS = 3
LEFT_BEHIND = torch.ones(16)


def place_of(fault: Any) -> str:
    """The line of its sum or product."""
    code = fault.__code__
    return f"{Path(code.co_filename).name}:{code.co_firstlineno + 1} {fault.__name__}"


def nothing(layer: nn.Module, x: Tensor) -> Tensor:
    return x


def stray_zeros(layer: nn.Module, x: Tensor) -> Tensor:
    return x + torch.zeros(x.size(-1))


def buffer_that_stays(layer: nn.Module, x: Tensor) -> Tensor:
    return x * LEFT_BEHIND.to(x.dtype)


def mask_of_the_cpu(layer: nn.Module, x: Tensor) -> Tensor:
    return x.masked_fill(torch.zeros(x.shape, dtype=torch.bool), 0.0)


def constant_in_float32(layer: nn.Module, x: Tensor) -> Tensor:
    return (x * torch.ones(x.size(-1), device=x.device)).to(x.dtype)


def step(fault: Fault, dtype: torch.dtype, device: str) -> None:
    """One training step with a fault in each layer of the encoder; the seeds of its random numbers are the same."""
    model = models.build(*models.CASES["post_ln"], "--dropout", "0").to(device).to(dtype)
    data = models.Batch(*(part.to(device) for part in models.batch()))
    SEEN.forget()
    with planted(EncoderLayer, fault):
        models.loss_of(model, data).backward()


@pytest.mark.parametrize("fault", [stray_zeros, buffer_that_stays, mask_of_the_cpu])
def test_a_tensor_that_is_left_behind_is_an_error_with_operation_and_line(fault: Fault) -> None:
    step(fault, torch.float32, "cpu")
    with pytest.raises(AssertionError) as caught:
        on_gpu(step, fault, torch.float32, "cuda")
    found = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    operation = {"stray_zeros": "aten.add", "mask_of_the_cpu": "aten.masked_fill"}.get(fault.__name__, "aten.mul")
    assert f"RuntimeError: {found} ({operation}" in str(caught.value)
    assert f"at tests/gpu/{place_of(fault)})" in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "dtype", "kind"),
    [
        (reads, torch.float32, "reads"),
        (sends, torch.float32, "sends"),
        (constant_in_float32, torch.float16, "promotions"),
    ],
)
def test_what_is_no_error_is_counted_by_place(fault: Fault, dtype: torch.dtype, kind: str) -> None:
    def seen() -> tuple[Counter[str], Counter[str]]:
        found = []
        for one in (nothing, fault):
            step(one, dtype, "cuda")
            found.append(Counter(getattr(SEEN, kind)))
        return found[0], found[1]

    without, found = on_gpu(seen)
    assert found - without == {f"tests/gpu/{place_of(fault)}": LAYERS}


@pretended
def test_every_way_to_wait_is_counted_once() -> None:
    x = torch.arange(6.0, device="cuda").view(2, 3)
    number = torch.tensor(3.0)
    scalars = (lambda: x.sum().item(), lambda: float(x[0, 0]), lambda: bool((x > 0).any()), x.tolist)
    copies = (x.cpu, lambda: torch.empty(2, 3).copy_(x), lambda: f"{x}")
    sizes = (lambda: x.nonzero(), lambda: x[x > 1], lambda: torch.equal(x, x), torch.cuda.synchronize)
    sends = (
        *(lambda: number.to("cuda"), number.cuda, lambda: torch.tensor([1, 2], device="cuda")),
        *(lambda: x.new_tensor([1, 2]), lambda: x.copy_(torch.ones(2, 3))),
    )
    free = (
        *(lambda: number.to("cuda", non_blocking=True), lambda: torch.full((2,), 3.0, device="cuda")),
        lambda: x * number,  # a single number travels with the call
        *(lambda: x.masked_fill_(x > 1, 0.0), lambda: x.__setitem__(x > 1, 0.0)),
        *(lambda: x.to(x.device), lambda: x[:, 0].add_(1)),
    )
    for ways, expected in (((*scalars, *copies, *sizes), (1, 0)), (sends, (0, 1)), (free, (0, 0))):
        for number_of_way, way in enumerate(ways):
            SEEN.forget()
            way()
            assert (SEEN.reads.total(), SEEN.sends.total()) == expected, number_of_way
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        np.asarray(x)


def test_nothing_is_left_behind() -> None:
    on_gpu(lambda: torch.ones(1, device="cuda").tolist())
    assert not torch.cuda.is_available()
    assert torch.ones(1).device.type == "cpu"
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        on_gpu(lambda: 1 / 0)
    # An object that cannot be sent is an error here, too, and not in a copy that goes on with the next test.
    here = os.getpid()
    with pytest.raises(AssertionError, match="pickle"):
        on_gpu(lambda: lambda: 1)
    assert os.getpid() == here


@pretended
def test_the_profile_of_admin_leaves_the_random_numbers_of_the_gpu_as_they_were() -> None:
    """Its pass draws dropout masks from the GPU's generator, which the CPU's state says nothing of."""
    model = models.build(*models.CASES["admin"]).cuda().half()
    data = models.Batch(*(part.to("cuda") for part in models.batch()))
    torch.manual_seed(5)
    first = models.loss_of(model, data)
    assert all(float(module.calibrated) == 1 for module in model.modules() if isinstance(module, AdminResidual))
    torch.manual_seed(5)
    assert torch.equal(models.loss_of(model, data), first)
