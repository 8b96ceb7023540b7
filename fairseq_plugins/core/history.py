"""History: what a layer takes as its input, given the outputs of the layers below.

A part of this axis is built with ``build(shape) -> History``, once for a stack.
"""

from __future__ import annotations

from typing import List

from torch import Tensor, nn

from fairseq_plugins.core.method import Axis, Part, Shape, register_part


class History(nn.Module):
    """Keeps the states of a stack and mixes them. State 0 is the embedding output; shapes are ``(T, B, C)``."""

    def forward(self, states: List[Tensor]) -> Tensor:
        """Input of the next layer or, after the last layer, output of the stack, from the states so far."""
        return states[-1]

    def remember(self, states: List[Tensor], x: Tensor) -> List[Tensor]:
        """The states after a layer has put out ``x``."""
        return states + [x]


class LastState(History):
    """Only the layer just below; remembers nothing else, so that memory does not grow with depth."""

    def remember(self, states: List[Tensor], x: Tensor) -> List[Tensor]:
        """Forget everything but ``x``."""
        return [x]


def build_last(shape: Shape) -> History:
    """The history of a plain Transformer."""
    return LastState()


register_part(Part(Axis.HISTORY, "last", build_last, summary="the output of the layer below"))
