"""Initialisation from data: one pass of the first training batch through the model.

A residual connection takes part if it is a :class:`Calibrated`. The pass runs inside the first training forward,
without gradients, and restores the random state. Its results are buffers: half-precision optimizers write their float32
copies of the parameters back at the first step. Buffers are saved, so that the pass is not repeated on resume.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from fairseq.modules import LayerDropModuleList
from torch import Tensor, nn

from fairseq_plugins.core.residual import Residual


class Calibrated(Residual):
    """A residual connection with a buffer ``calibrated`` (1 once data has been seen) that observes the first batch."""

    # A float, since integer buffers break fairseq's exponential moving average of the weights.
    calibrated: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calibrated", torch.zeros(1))

    def observe(self, branch: Tensor, stream: Tensor, carried: float) -> float:
        """Observe the inputs of the residual connection, ``(T, B, C)``, before it adds them.

        Args:
            branch: as in :meth:`Residual.forward`.
            stream: as in :meth:`Residual.forward`.
            carried: the result of the residual connection below in the same stack; 1 at the bottom.
        """
        raise NotImplementedError

    def settle(self) -> None:
        """Called on every residual connection once the whole network has been observed; does nothing by default."""


def population_variance(x: Tensor) -> float:
    """Return the variance of all elements of ``x`` around their common mean, in float64, over all processes."""
    values = x.detach().double()
    sums = torch.stack([values.sum(), (values * values).sum(), values.new_full((), values.numel())])
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(sums)
    total, squares, count = sums.tolist()
    return max(squares / count - (total / count) ** 2, 0.0)


def pending(model: nn.Module) -> bool:
    """Return whether a residual connection of ``model`` still has to see data."""
    return any(float(m.calibrated) < 0.5 for m in model.modules() if isinstance(m, Calibrated))


def _see(carried: dict[str, float], residual: Any, inputs: tuple[Tensor, ...]) -> None:
    branch, stream, _ = inputs
    carried["value"] = residual.observe(branch, stream, carried["value"])


def calibrate(stacks: list[tuple[str, nn.Module]], model: nn.Module, forward: Callable[[], object]) -> None:
    """Run ``forward`` once under observation.

    Args:
        stacks: name and module of each stack that takes part; the carried value starts at 1 at the bottom of each.
        model: the model that ``forward`` runs.
        forward: runs the model on the first training batch. Every process calls this at the same time.
    """
    device = next(model.parameters()).device
    forked = [device] if device.type == "cuda" else []
    observers = [[m for m in stack.modules() if isinstance(m, Calibrated)] for _, stack in stacks]
    with torch.no_grad(), torch.random.fork_rng(devices=forked), contextlib.ExitStack() as after:
        for layers in model.modules():
            if isinstance(layers, LayerDropModuleList):  # a skipped layer would never be calibrated
                after.callback(setattr, layers, "p", layers.p)
                layers.p = -1.0
        for of_stack in observers:
            see = functools.partial(_see, {"value": 1.0})
            for residual in of_stack:
                after.callback(residual.register_forward_pre_hook(see).remove)
        forward()
        for residual in itertools.chain(*observers):
            residual.settle()
            residual.calibrated.fill_(1.0)
