"""Observe a model: its sub-layers in the order in which they run, and the tensors of one pass.

Everything comes from hooks on residuals, norms, layers and histories; leaving the context removes them.

Legend: T time, B batch, C width.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from fairseq_plugins.core.sub_layers import SubLayer, sub_layers


@dataclass(eq=False)
class Visit:
    """Tensors of one sub-layer in one pass, each ``(T, B, C)``.

    Attributes:
        sub: the sub-layer.
        branch: input of its residual connection.
        stream: input of its residual connection.
        layer_input: input of its residual connection.
        total: output of the residual connection.
        output: input of the next sub-layer, or of the module above the layer.
        norm_input: input of its norm; None without a norm.
        norm_output: output of its norm.
    """

    sub: SubLayer
    branch: Tensor
    stream: Tensor
    layer_input: Tensor
    total: Tensor
    output: Tensor
    norm_input: Tensor | None = None
    norm_output: Tensor | None = None


@dataclass(eq=False)
class Recording:
    """Tensors of a model in one pass.

    Attributes:
        visits: its sub-layers as they ran.
        layer_outputs: stack and number of a layer, from 0, to its output, before any history mixes it.
        mixtures: stack to the inputs of its layers and, at the end, the stack's output before the norm on top.
        bottoms: stack to its embedding output.
    """

    visits: list[Visit] = field(default_factory=list)
    layer_outputs: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    mixtures: dict[str, list[Tensor]] = field(default_factory=dict)
    bottoms: dict[str, Tensor] = field(default_factory=dict)

    def of(self, stack: str) -> list[Visit]:
        """Return the visits of one stack."""
        return [visit for visit in self.visits if visit.sub.stack == stack]


@contextlib.contextmanager
def recording(model: Any) -> Iterator[Recording]:
    """Record the forward pass inside the context; tensors keep their graph if there is one."""
    record = Recording()
    handles: list[Any] = []
    try:
        for name, stack in model.stacks():
            handles += _watch_stack(record, name, stack)
        for sub in sub_layers(model):
            handles += _watch_sub_layer(record, sub)
        yield record
    finally:
        for handle in handles:
            handle.remove()


def _watch_stack(record: Recording, name: str, stack: Any) -> Iterator[Any]:
    yield stack.history.register_forward_hook(lambda *call: _see_mixture(record, name, *call[1:]))
    for number, layer in enumerate(stack.layers.children()):
        yield layer.register_forward_hook(lambda *call, number=number: _see_layer(record, (name, number), call[2]))


def _watch_sub_layer(record: Recording, sub: SubLayer) -> Iterator[Any]:
    seen: list[tuple[Tensor, Tensor]] = []
    if sub.norm is not None:
        yield sub.norm.register_forward_hook(lambda *call: _see_norm(record, seen, *call))
    yield sub.residual.register_forward_hook(lambda *call: _see_residual(record, sub, seen, *call[1:]))


def _see_mixture(record: Recording, stack: str, inputs: Any, mixture: Tensor) -> None:
    record.bottoms.setdefault(stack, inputs[0][0])
    record.mixtures.setdefault(stack, []).append(mixture)


def _see_layer(record: Recording, key: tuple[str, int], result: Any) -> None:
    output = result[0]
    record.layer_outputs[key] = output
    record.visits[-1].output = output


def _see_norm(record: Recording, seen: list[Any], norm: nn.Module, inputs: Any, output: Tensor) -> None:
    seen[:] = [(inputs[0], output)]
    # A norm after its residual connection belongs to the visit that already exists.
    if record.visits and record.visits[-1].sub.norm is norm:
        record.visits[-1].norm_input, record.visits[-1].norm_output = seen.pop()


def _see_residual(record: Recording, sub: SubLayer, seen: list[Any], inputs: Any, total: Tensor) -> None:
    branch, stream, layer_input = inputs
    if record.visits and record.visits[-1].sub.layer is sub.layer:
        record.visits[-1].output = stream
    visit = Visit(sub, branch, stream, layer_input, total, total)
    if seen:
        visit.norm_input, visit.norm_output = seen.pop()
    record.visits.append(visit)


@contextlib.contextmanager
def replaced_outputs(hooks: dict[nn.Module, Any]) -> Iterator[None]:
    """Replace the outputs of modules by those of their hooks ``(module, inputs, output)``."""
    handles = [module.register_forward_hook(hook) for module, hook in hooks.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
