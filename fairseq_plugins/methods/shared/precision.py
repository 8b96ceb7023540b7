"""Precision: lengths of vectors in the range of half precision, whose squares overflow from 256 on; no autocast."""

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor


def without_autocast(device: str) -> AbstractContextManager[None]:
    """A context in which operations keep the types of their inputs; ``device`` is a type, such as ``cpu``.

    Free where autocast is off: to enter a disabled context costs as much as several small operations.
    """
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def at_least_float32(x: Tensor) -> Tensor:
    """Return x in float32 or more."""
    return x if x.dtype == torch.float64 else x.float()


def unit(x: Tensor, shortest: float, gain: Tensor | float = 1.0) -> Tensor:
    """Give vectors ``(..., C)`` the length ``gain``, a float or ``(1)``; one below ``shortest`` counts as that.

    On a GPU, where torch has one kernel, a length l counts as sqrt(l^2 + shortest^2).
    """
    if x.is_cuda:
        with without_autocast(x.device.type):
            return F.rms_norm(x, x.shape[-1:], eps=shortest**2 / x.size(-1)) * (gain * x.size(-1) ** -0.5)
    return (x * (square(x).clamp(min=shortest**2).rsqrt() * gain)).type_as(x)


def inverse_rms(x: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Return ``(..., 1)``, RMSNorm's factor for ``(..., C)``."""
    return torch.rsqrt(square(x) / x.size(-1) + epsilon)


def square(x: Tensor) -> Tensor:
    """Return x . x, ``(..., 1)``; its backward pass takes half as long as that of ``vector_norm``."""
    if x.is_cuda:  # one kernel
        dtype = torch.promote_types(x.dtype, torch.float32)
        return torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype).square()
    x = at_least_float32(x)
    with without_autocast(x.device.type):  # autocast treats vecdot as a matrix product
        return torch.linalg.vecdot(x, x).unsqueeze(-1)
