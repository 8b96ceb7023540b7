"""Lengths of vectors and mean squares, without leaving the range of half precision, where a square does at 256."""

from __future__ import annotations

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """Return x in float32 or more."""
    return x if x.dtype == torch.float64 else x.float()


def unit(x: Tensor, shortest: float) -> Tensor:
    """Divide vectors ``(..., C)`` by their lengths; one below ``shortest`` counts as that."""
    return (x / torch.linalg.vector_norm(wide(x), dim=-1, keepdim=True).clamp(min=shortest)).type_as(x)


def over_rms(product: Tensor, x: Tensor) -> Tensor:
    """Divide what a linear map makes of ``(..., C)`` by the root of the mean square of x: map(RMSNorm(x)), no gain."""
    square = wide(x).square().mean(dim=-1, keepdim=True)
    return wide(product) * torch.rsqrt(square + 1e-5)
