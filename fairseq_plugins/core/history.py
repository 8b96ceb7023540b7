"""History: the input of a layer as a function of the outputs of the layers below."""

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.core.method import Axis, part
from fairseq_plugins.core.norm import layer_norms


class History(nn.Module):
    """Keeps the states of a stack and mixes them. State 0 is the embedding output; shapes are ``(T, B, C)``."""

    def forward(self, states: list[Tensor]) -> Tensor:
        """Input of the next layer or, after the last layer, output of the stack, from the states so far."""
        return states[-1]

    def remember(self, states: list[Tensor], x: Tensor) -> list[Tensor]:
        """The states after a layer has returned ``x``; ``states`` itself may change and is not to be used again."""
        return states + [x]


class LastState(History):
    """Only the output of the layer below; it keeps nothing else, so that memory does not grow with depth."""

    def remember(self, states: list[Tensor], x: Tensor) -> list[Tensor]:
        """Forget everything but ``x``."""
        return [x]


def mixing_weights(stack: Any) -> Tensor:
    """Return the weight of state k in the input of layer l + 1, ``(L + 1, L + 1)``; row L is the output of the stack.

    The weights are means over the width, zero right of the diagonal. Without LayerNorms a history is linear, so each is
    the output for a one in place of that state.
    """
    size, width = len(stack.layers) + 1, stack.design.width
    like = next(stack.history.parameters(), torch.empty(0))
    ones = torch.eye(size, dtype=like.dtype, device=like.device).view(size, size, 1, 1).expand(size, size, 1, width)
    rows = []
    with contextlib.ExitStack() as hooks, torch.no_grad():
        for norm in layer_norms(stack.history):
            hooks.callback(norm.register_forward_hook(lambda _, inputs, output: inputs[0]).remove)
        states = [ones[0]]  # (place, 1, C)
        for number in range(1, size + 1):
            rows.append(stack.history(states).float().mean(dim=(1, 2)))
            if number < size:
                states = stack.history.remember(states, ones[number])
    return torch.stack(rows)


part(Axis.LAYER_AGGREGATION, "last", summary="the output of the layer below")(lambda design: LastState())
