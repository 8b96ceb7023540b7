"""Dropout that keeps one byte a number for the backward pass on a CPU, where torch keeps a factor of four bytes.

Output, gradient and random numbers are those of ``torch.nn.functional.dropout`` bit for bit. On a GPU torch keeps
one byte.
"""

from __future__ import annotations

from typing import Any

import torch
from fairseq.modules import FairseqDropout
from torch import Tensor


class _DropOut(torch.autograd.Function):
    """``x * noise``, noise 0 or 1 / (1 - p). The operations and their order are torch's on a CPU; any shape."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        noise = torch.empty_like(x).bernoulli_(1 - p)
        ctx.save_for_backward(noise.to(torch.int8))
        ctx.p = p
        return noise.div_(1 - p).mul_(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return kept.to(gradients[0].dtype).div_(1 - ctx.p).mul_(gradients[0]), None


class LeanDropout(FairseqDropout):
    """fairseq's dropout module with less memory on a CPU."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        """Drop numbers of ``x``, of any shape, where fairseq's module would."""
        if 0 < self.p < 1 and (self.training or self.apply_during_inference) and not x.is_cuda:
            return _DropOut.apply(x, self.p)  # type: ignore[no-untyped-call]
        return super().forward(x, inplace)
