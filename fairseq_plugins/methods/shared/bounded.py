"""In place of a norm: ``weight * f(alpha x + shift) + bias`` with a bounded f: DyT, Derf.

Autograd keeps x and the value of f. Left to itself, it would make more operations of the backward pass, and keep the
argument of erf, too.
"""

from typing import Any

import torch
from torch import Tensor, nn


class BoundedNorm(nn.Module):
    """weight * value(x) + bias, weight and bias ``(C)``, alpha one scalar. Any shape ``(..., C)``.

    A subclass gives f; it may have a scalar of its own, ``shift``.
    """

    shift: Tensor | None

    def __init__(self, width: int, alpha: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.alpha = nn.Parameter(torch.full((1,), alpha))
        self.register_parameter("shift", None)

    def value(self, x: Tensor, alpha: Tensor, shift: Tensor | None) -> Tensor:
        """Return f(alpha x + shift)."""
        raise NotImplementedError

    def gradient(self, by_value: Tensor, value: Tensor, x: Tensor, alpha: Tensor, shift: Tensor | None) -> Tensor:
        """Return the gradient with respect to alpha x + shift, given that with respect to the value."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Apply the bounded function to ``(..., C)``."""
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            return _Squash.apply(  # type: ignore[no-untyped-call]
                self, x, self.alpha, self.shift, self.weight, self.bias
            )
        return torch.addcmul(self.bias, self.weight, self.value(x, self.alpha, self.shift))


class _Squash(torch.autograd.Function):
    """The forward pass of a :class:`BoundedNorm`; shift is None where it has none."""

    @staticmethod
    def forward(
        ctx: Any, module: BoundedNorm, x: Tensor, alpha: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor
    ) -> Tensor:
        value = module.value(x, alpha, shift)
        ctx.value, ctx.gradient = module.value, module.gradient
        ctx.save_for_backward(x, alpha, shift, weight, value)
        return torch.addcmul(bias, weight, value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, alpha, shift, weight, value = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            value = ctx.value(x, alpha, shift)
        gradient = gradients[0].contiguous()
        rows = gradient.view(-1, len(weight))
        by_weight = (rows * value.reshape(-1, len(weight))).sum(0)
        by_inner = ctx.gradient(gradient * weight, value, x, alpha, shift)
        by_alpha = (by_inner * x).sum().view(1)
        by_shift = None if shift is None else by_inner.sum().view(1)
        return None, by_inner * alpha, by_alpha, by_shift, by_weight, rows.sum(0)
