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
    return wide(product) * torch.rsqrt(mean_square(x) + 1e-5)


def mean_square(x: Tensor) -> Tensor:
    """Return ``(..., 1)``. A scalar product keeps x alone for the backward pass, no squares."""
    x = wide(x)
    return torch.linalg.vecdot(x, x).unsqueeze(-1) / x.size(-1)
