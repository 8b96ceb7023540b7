"""Linear combinations of all states of a stack so far, each by one product of a matrix and a vector.

Sums over states one by one take some L^2 / 2 small operations in a stack of L layers. Here every state is copied into
one buffer ``(L + 1, N)``, and mixture l is ``buffer^T W[l]``. With g_l the gradient of mixture l and y_k the states,
``dL/dy_k = sum_{l >= k} W[l, k] g_l`` and ``dL/dW[l, k] = <g_l, y_k>`` are one product each, from a buffer of all g_l.
Both buffers are temporary; memory and operations are linear in L.

One autograd function stores a state, another mixes. Each passes a token on to the next, and to no other; the gradient
of the token is the buffer of gradients. So autograd runs them in order, drops the buffer at the end, and starts a new
one in each backward pass. Each may change it in place, except where a second derivative is asked for.

Legend: L layers, N numbers in a state, for instance T B C.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_plugins.methods.shared.precision import without_autocast


def _product(matrix: Tensor, vector: Tensor) -> Tensor:
    """Multiply in the precision of the arguments, under autocast too."""
    with without_autocast(matrix.device.type):
        return torch.mv(matrix, vector)


def _mixture(buffer: Tensor, row: Tensor, number: int) -> Tensor:
    """Mix the rows of the buffer up to ``number`` by those numbers of ``row``."""
    return _product(buffer[: number + 1].t(), row[: number + 1])


class _Store(torch.autograd.Function):
    """Copy state k ``(...)`` into row k of the buffer; ``column`` is ``W[:, k]``, ``(L + 1)``."""

    @staticmethod
    def forward(ctx: Any, token: Tensor, state: Tensor, column: Tensor, buffer: Tensor, number: int) -> Tensor:
        buffer[number].view(state.shape).copy_(state)
        ctx.save_for_backward(state, column)
        ctx.number = number
        ctx.set_materialize_grads(False)
        return token.view_as(token)

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        gradients, number = output_gradients[0], ctx.number
        if gradients is None:
            return None, None, None, None, None
        state, column = ctx.saved_tensors
        above = gradients[number:]
        of_state = of_column = None
        if ctx.needs_input_grad[1]:
            # In one piece: a product with numbers that lie a row of W apart takes nearly three times as long.
            weights = column[number:].contiguous()
            of_state = _product(above.t(), weights).view(state.shape).to(state.dtype)
        if ctx.needs_input_grad[2]:
            of_column = F.pad(_product(above, state.reshape(-1).to(above.dtype)), (number, 0))
        return gradients, of_state, of_column, None, None


class _Mix(torch.autograd.Function):
    """Mix the rows of the buffer up to ``number`` by ``row``, which is row ``number`` of W."""

    @staticmethod
    def forward(ctx: Any, token: Tensor, row: Tensor, buffer: Tensor, number: int) -> tuple[Tensor, Tensor]:
        ctx.number, ctx.rows = number, len(buffer)
        ctx.set_materialize_grads(False)
        return token.view_as(token), _mixture(buffer, row, number)

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        gradients, of_mixture = output_gradients
        if of_mixture is not None:
            if gradients is None:
                gradients = of_mixture.new_zeros(ctx.rows, len(of_mixture))
            if torch.is_grad_enabled():  # for a second derivative
                gradients = gradients.clone()
            gradients[ctx.number] += of_mixture
        return gradients, None, None, None


class BufferedStates(list[Tensor]):
    """The states of one forward pass, in one buffer. As a list, it has the states without their gradients.

    A state that is stored without gradients has none in a mixture made with them.

    Args:
        weights: W, ``(L + 1, L + 1)``; entries right of the diagonal are not read and get a gradient of zero.
        states: the first states, all of one shape; their type and that of W give the type of mixtures.
    """

    def __init__(self, weights: Tensor, *states: Tensor) -> None:
        super().__init__()
        kind = weights.dtype
        for state in states:
            kind = torch.promote_types(kind, state.dtype)
        weights = weights.to(kind)
        self._rows, self._columns = weights.detach(), weights.unbind(1)
        self._buffer = states[0].new_empty(len(weights), states[0].numel(), dtype=kind)
        # The size of the buffer of gradients, and no memory.
        self._token = self._buffer.new_empty(()).expand(self._buffer.shape)
        for state in states:
            self.store(state)

    def store(self, state: Tensor) -> None:
        """Add the next state."""
        number = len(self)
        if torch.is_grad_enabled():
            self._token = _Store.apply(  # type: ignore[no-untyped-call]
                self._token, state, self._columns[number], self._buffer, number
            )
        else:  # A search does this at each step, where a call of autograd costs more than the copy.
            self._buffer[number].view(state.shape).copy_(state)
        self.append(self._buffer[number].view(state.shape))

    def mix(self) -> Tensor:
        """Multiply the states so far by the row of W for their number; the result has the shape of a state."""
        number = len(self) - 1
        if torch.is_grad_enabled():
            self._token, mixture = _Mix.apply(  # type: ignore[no-untyped-call]
                self._token, self._rows[number], self._buffer, number
            )
        else:
            mixture = _mixture(self._buffer, self._rows[number], number)
        return mixture.view(self[0].shape)


def with_state(states: list[Tensor], x: Tensor, weights: Callable[[], Tensor]) -> BufferedStates:
    """Return ``states`` with one more state.

    Args:
        states: the states of the layers below, each ``(T, B, C)``; may be changed.
        x: the new state, ``(T, B, C)``.
        weights: returns W, ``(L + 1, L + 1)``; called once a forward pass.
    """
    if isinstance(states, BufferedStates):
        states.store(x)
        return states
    return BufferedStates(weights(), *states, x)
