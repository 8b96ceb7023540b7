"""Observe a model: its sub-layers in the order in which they run, and the tensors of one pass.

Everything comes from hooks on residuals, norms, layers and histories; leaving the context removes them.

Legend: T time, B batch, C width.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.core.layers import Carried
from fairseq_plugins.core.sub_layers import SubLayer, sub_layers
from fairseq_plugins.tools.observe.recorder.activations import hooked


@dataclass(eq=False)
class Visit:
    """Tensors of the sub-layer ``sub`` in one pass, each ``(T, B, C)``.

    ``branch``, ``stream`` and ``layer_input`` enter the residual connection, and ``total`` leaves it. ``output`` enters
    the next sub-layer or the module above the layer; the tensors around the norm are None without a norm.
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
class ObservedPass:
    """Tensors of a model in one pass.

    Attributes:
        visits: its sub-layers as they ran, each once.
        layer_outputs: stack and number of a layer, from 0, to its output before any history mixes it: the stream and,
            in a stack that has any, the extra streams.
        mixtures: stack to the inputs of its layers and, at the end, the stack's output before the norm on top.
        bottoms: stack to its embedding output.
    """

    visits: list[Visit] = field(default_factory=list)
    layer_outputs: dict[tuple[str, int], tuple[Tensor, ...]] = field(default_factory=dict)
    mixtures: dict[str, list[Tensor]] = field(default_factory=dict)
    bottoms: dict[str, Tensor] = field(default_factory=dict)
    _norm: tuple[Tensor, Tensor] | None = None
    """Input and output of a norm whose residual connection has not run yet."""

    def see_mixture(self, stack: str, history: nn.Module, inputs: Any, mixture: Tensor) -> None:
        """Hook of a stack's history."""
        self.bottoms.setdefault(stack, inputs[0][0])
        self.mixtures.setdefault(stack, []).append(mixture)

    def see_layer(self, stack: str, number: int, layer: nn.Module, inputs: Any, result: Any) -> None:
        """Hook of a layer."""
        x, extra = result[0], Carried(*result[-len(Carried._fields) :]).extra
        self.visits[-1].output = x
        self.layer_outputs[stack, number] = (x,) if extra is None else (x, extra)

    def see_solver(self, stack: str, solver: nn.Module, inputs: Any, state: Tensor) -> None:
        """Hook of a stack's solver, whose state replaces the output of the last evaluation of the layer."""
        self.layer_outputs[stack, self.visits[-1].sub.number] = (state,)

    def see_norm(self, norm: nn.Module, inputs: Any, output: Tensor) -> None:
        """Hook of a sub-layer's norm; after its residual connection, it belongs to the visit that already exists."""
        if self.visits and self.visits[-1].sub.norm is norm:
            self.visits[-1].norm_input, self.visits[-1].norm_output = inputs[0], output
        else:
            self._norm = inputs[0], output

    def see_residual(self, sub: SubLayer, residual: nn.Module, inputs: Any, total: Tensor) -> None:
        """Hook of a residual connection."""
        branch, stream, layer_input = inputs
        # A solver evaluates a layer several times: the last evaluation counts.
        again = next((number for number, visit in enumerate(self.visits) if visit.sub is sub), len(self.visits))
        del self.visits[again:]
        if self.visits and self.visits[-1].sub.layer is sub.layer:
            self.visits[-1].output = stream
        visit = Visit(sub, branch, stream, layer_input, total, total)
        if self._norm is not None:
            (visit.norm_input, visit.norm_output), self._norm = self._norm, None
        self.visits.append(visit)


@contextlib.contextmanager
def recording(model: Any) -> Iterator[ObservedPass]:
    """Record the forward pass inside the context; tensors keep their graph if there is one."""
    record = ObservedPass()
    hooks: list[tuple[nn.Module, Any]] = []
    for name, stack in model.stacks():
        hooks.append((stack.history, partial(record.see_mixture, name)))
        layers = enumerate(stack.layers.children())
        hooks += [(layer, partial(record.see_layer, name, number)) for number, layer in layers]
        if stack.solver is not None:
            hooks.append((stack.solver, partial(record.see_solver, name)))
    for sub in sub_layers(model):
        if sub.norm is not None:
            hooks.append((sub.norm, record.see_norm))
        hooks.append((sub.residual, partial(record.see_residual, sub)))
    with hooked(hooks):
        yield record


@torch.no_grad()
def finished(stack: Any, x: Tensor, *extra: Tensor) -> Tensor:
    """Return the output of ``stack``, below its norm on top, if the layer with these outputs were the last layer."""
    return stack.side_stream.finish(x, *extra) if extra else x
