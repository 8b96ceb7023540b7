"""Linear maps that are stored in another form than one weight and one vector of biases."""

from __future__ import annotations

from torch import Tensor, nn


class AffineMap(nn.Linear):
    """A map that computes ``matrix x + constant``; ``weight`` is a parameter of the matrix, if not the matrix itself.

    The fold, the export and the search in lower precision read the two and need nothing else of it.
    """

    def matrix(self) -> Tensor:
        """Return what it multiplies by, ``(out, in)``."""
        return self.weight

    def constant(self) -> Tensor | None:
        """Return what a vector of biases would be, ``(out)``."""
        return self.bias

    def weight_is_drawn(self) -> None:
        """Set what follows from the first ``weight``. Called once, under ``torch.no_grad``."""


def affine_form(linear: nn.Linear) -> tuple[Tensor, Tensor | None] | None:
    """Return the matrix and the constant of a linear map, or None for a class that does not say."""
    if isinstance(linear, AffineMap):
        return linear.matrix(), linear.constant()
    return (linear.weight, linear.bias) if type(linear) is nn.Linear else None
