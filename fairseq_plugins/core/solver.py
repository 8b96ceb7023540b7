"""Solver: how a stack goes from one state to the next with a layer, if it evaluates the layer more than once.

A residual stream is Euler's method for an ordinary differential equation: one evaluation of a layer is one step.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Stack, part

LayerFunction = Callable[[Tensor], Tensor]
"""A layer as a function of its input, ``(T, B, C)`` to ``(T, B, C)``."""


class Solver(nn.Module):
    """Combines several evaluations of a layer.

    ``forward(layer, x, past)`` returns the next state, ``(T, B, C)``, like the state ``x``. ``layer`` evaluates the
    layer. ``past`` holds the tensors that the solver keeps from layers below, at first the embedding; it may append.
    """


def only_encoders(design: StackDesign, config: Any) -> list[str]:
    """``Part.conflicts`` of solvers: refuse decoders, whose cache holds one evaluation, and extra streams."""
    solver, residual = design.choice(Axis.SOLVER), design.parts[Axis.RESIDUAL]
    if design.stack is Stack.DECODER:
        return [
            f"--solver {solver} evaluates a layer several times, and the cache of a search holds one evaluation: "
            f"use it in the encoder alone, --solver {solver},euler"
        ]
    if residual.extra_streams(design) is not None:
        return [f"--solver {solver} keeps one stream: it cannot be combined with --residual {residual.name}"]
    return []


part(Axis.SOLVER, "euler", summary="one evaluation of each layer, as in the original Transformer")(lambda design: None)
