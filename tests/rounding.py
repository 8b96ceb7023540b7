"""Tolerances for single precision on another processor, which adds in another order."""

import torch
from torch import Tensor


def scale(expected: Tensor) -> float:
    """Largest value of ``expected``, at least 1: the rounding of a sum is in proportion to its largest terms."""
    return max(1.0, float(expected.detach().abs().max()))


def assert_same_to_rounding(found: Tensor, expected: Tensor, share: float = 1e-5, msg: str | None = None) -> None:
    """Compare with ``share`` of the scale, about eighty times the rounding of one number in single precision."""
    torch.testing.assert_close(found, expected, rtol=0, atol=share * scale(expected), msg=msg)
