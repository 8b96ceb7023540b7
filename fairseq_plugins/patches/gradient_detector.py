"""The search for the first gradient that is not a number ends in StopIteration instead of the layer's name.

If the gradients of an update are not finite, ``fairseq-train`` repeats the update with hooks that name the module. An
encoder returns a dictionary of lists, where torch's old kind of hook looks for a tensor and finds none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from fairseq.nan_detector import NanDetector
from torch import Tensor, nn

from fairseq_plugins.patches.wrapping import wrap


def tensors_in(output: Any) -> Iterator[Tensor]:
    """Yield every tensor in the output of a module, at any depth."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, (dict, list, tuple)):
        for part in output.values() if isinstance(output, dict) else output:
            yield from tensors_in(part)


def watch_gradients(detector: NanDetector, module: nn.Module, inputs: Any, output: Any) -> None:
    """Show ``detector`` the gradient of everything that ``module`` has returned."""
    for tensor in tensors_in(output):
        if tensor.requires_grad:
            tensor.register_hook(functools.partial(detector.bhook_fn, module, None))


def add_hooks(add: Callable[..., None], detector: NanDetector, module: nn.Module) -> None:
    """``NanDetector.add_hooks`` with hooks on tensors for the backward pass."""
    backward, detector.backward = detector.backward, False
    add(detector, module)
    detector.backward = backward
    if backward:
        detector.bhooks.append(module.register_forward_hook(functools.partial(watch_gradients, detector)))


def apply() -> None:
    """Wrap the method that is called for every module."""
    wrap(NanDetector, "add_hooks", add_hooks)
