"""Faults that a graph must not hide, planted into layers, with the pretended GPU's answer to each."""

import itertools
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from fairseq_plugins.core import recorded

Fault = Callable[[Any, Tensor], Tensor]
FACTORS = itertools.cycle((1.0, 1.0001, 1.0002))


def planted(kind: type[nn.Module], fault: Fault) -> Any:
    forward = kind.forward

    def faulty(layer: Any, *args: Any, **kwargs: Any) -> Any:
        x, *rest = forward(layer, *args, **kwargs)
        return (fault(layer, x), *rest)

    return mock.patch.object(kind, "forward", faulty)


def reads(layer: Any, x: Tensor) -> Tensor:
    return x * (0.5 if float(x.detach().sum()) > 1e9 else 1.0)


def sends(layer: Any, x: Tensor) -> Tensor:
    return x * torch.tensor(0.9, device=x.device, dtype=x.dtype)


def counts(layer: Any, x: Tensor) -> Tensor:
    """The recorded pass has counted once more, which nobody can undo."""
    layer.calls = getattr(layer, "calls", 0) + 1
    return x * (1 + 0.01 * layer.calls)


def is_noisy(layer: Any, x: Tensor) -> Tensor:
    """Gradients are others each time, as of attention kernels that add up in the order in which their blocks end."""
    x = x.clone()
    if x.requires_grad:
        x.register_hook(lambda gradient: gradient * next(FACTORS))
    return x


def replaces(layer: Any, x: Tensor) -> Tensor:
    """Position tables grow with the longest batch; without the copy that a graph keeps, it would read freed memory."""
    table = getattr(layer, "table", None)
    layer.table = torch.full_like(x, 0.5) if table is None or table.shape != x.shape else table
    return x * layer.table


def forgetful() -> Any:
    class Forgetful(recorded.Inputs):
        def kept(self) -> list[Tensor]:
            return []

    return mock.patch.object(recorded, "Inputs", Forgetful)
