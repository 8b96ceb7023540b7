"""A failing update once more, under hooks that find the first module whose output is not finite."""

import contextlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from torch import Tensor, nn

from fairseq_plugins.core.residual import Residual
from fairseq_plugins.tools.observe.guard.places import FaultPlace
from fairseq_plugins.tools.observe.recorder.activations import hooked
from fairseq_plugins.tools.observe.recorder.gradients import group_of

REPEATING = "divergence_repeating"
"""Attribute of a trainer that is set while an update is repeated."""


class LeftUpdate(Exception):
    """Leaves an update before its step; none of fairseq's handlers catches it."""


class Repeated(LeftUpdate):
    """Leaves an update that was repeated only to find the place."""


def is_finite(x: Any) -> bool:
    """Return whether the output of a module is finite; of several outputs only the first, others may be masks."""
    first = x[0] if isinstance(x, (tuple, list)) and x else x
    return not isinstance(first, Tensor) or bool(torch.isfinite(first.detach()).all())


def not_finite(model: nn.Module) -> list[str]:
    """Return the names of parameters that are not finite."""
    return [name for name, parameter in model.named_parameters() if not is_finite(parameter)]


class FirstNotFinite:
    """Finds the first module, in the order in which they run, whose output is not finite."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        # A module without parameters passes on its input; the sub-layers of a layer share dropouts.
        self.modules = {
            path: module
            for path, module in model.named_modules()
            if path and (isinstance(module, Residual) or next(module.parameters(), None) is not None)
        }
        self._calls = 0
        self._first: tuple[int, str] | None = None

    def see(self, path: str, module: nn.Module, inputs: Any, output: Any) -> None:
        """Hook of a module."""
        self._calls += 1
        # An attention is not always called as a module, so its branch is first visible in the residual connection.
        tensors = (output, *inputs) if isinstance(module, Residual) else (output,)
        if self._first is None and not all(map(is_finite, tensors)):
            self._first = self._calls, path

    def place(self, trainer: Trainer) -> FaultPlace | None:
        """Return the first place; with several processes the first of all, in each of them."""
        path = self._first[1] if self._first is not None else None
        if trainer.data_parallel_world_size > 1:
            paths = list(self.modules)
            device = next(self._model.parameters()).device
            calls = torch.full((len(paths),), -math.inf, dtype=torch.float64, device=device)
            if self._first is not None:
                calls[paths.index(path)] = -float(self._first[0])
            calls = distributed_utils.all_reduce(calls, group=trainer.data_parallel_process_group, op="max")
            first = int(calls.argmax())
            path = paths[first] if math.isfinite(float(calls[first])) else None
        if path is None:
            return None
        what = "branch or sum" if isinstance(self.modules[path], Residual) else "output"
        return FaultPlace(group_of(f"{path}.weight"), f"the {what} of {path} is the first that is not finite")


def repeat(train_step: Callable[..., Any], trainer: Trainer, samples: Any) -> FirstNotFinite:
    """Compute the update once more until its gradients are complete, with the same dropout; return the hooks' findings.

    Every process calls this.
    """
    model = trainer.get_model()
    search = FirstNotFinite(model)
    hooks = ((module, partial(search.see, path)) for path, module in search.modules.items())
    reset_factor(trainer.optimizer)
    # The repeated forward pass must not count twice.
    buffers = [buffer.clone() for buffer in model.buffers()]
    setattr(trainer, REPEATING, True)
    try:
        with contextlib.suppress(Repeated), hooked(hooks), balanced_meters():
            train_step(trainer, samples)
    finally:
        delattr(trainer, REPEATING)
        with torch.no_grad():
            for buffer, before in zip(model.buffers(), buffers, strict=True):
                buffer.copy_(before)
    return search


@contextlib.contextmanager
def balanced_meters() -> Iterator[None]:
    """Close fairseq's meters if an update is left; fairseq itself would not."""
    meters = (metrics._active_aggregators_cnt, metrics._active_aggregators)
    before = [dict(meter) for meter in meters]
    try:
        yield
    except LeftUpdate:
        for meter, content in zip(meters, before, strict=True):
            meter.clear()
            meter.update(content)
        raise


def reset_factor(optimizer: Any) -> None:
    """Reset the factor by which a dropped update has multiplied its gradients.

    fairseq's optimizer for bfloat16 keeps the factor until a step, and ``zero_grad`` does not change the factor.
    """
    if hasattr(optimizer, "_multiply_factor") and optimizer.scaler is None:
        optimizer._multiply_factor = 1.0
