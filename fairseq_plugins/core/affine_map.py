"""Linear maps that are made of another one, some of them stored in another form than a weight and a bias."""

from __future__ import annotations

from torch import Tensor, nn


class RemadeMap(nn.Linear):
    """Base of linear maps that take the weight and the bias of another one, and keep their names.

    Args:
        linear: the map that it replaces.
    """

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)  # nn.Linear's would draw a weight that is not used
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias


class AffineMap(RemadeMap):
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
