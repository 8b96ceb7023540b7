"""Linear maps of a layer: the constant added to their product (bias), and the matrix (weight form).

Parts of both axes change the maps of one new layer in place: ``q_proj, k_proj, v_proj, out_proj`` of its attentions,
``fc1`` and ``fc2``; the weight form when all other parts have been built.
"""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, part
from fairseq_plugins.errors import UserError, flag


class RemadeMap(nn.Linear):
    """Base of linear maps that take the weight and the bias of another one, and keep their names.

    Args:
        linear: the map that it replaces.
    """

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)  # nn.Linear's would draw a weight that is not used
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias


class MatrixForm:
    """A map, or an embedding, of a matrix and a constant; ``weight`` is a parameter of the matrix, if not itself that.

    The fold and the export read the two and need nothing else.
    """

    weight: Tensor

    def matrix(self) -> Tensor:
        """Return the matrix of a map, ``(out, in)``, or the vectors of all tokens, ``(V, C)``."""
        return self.weight

    def constant(self) -> Tensor | None:
        """Return the constant, ``(out)``: the output for zeros; None if there is none."""
        return getattr(self, "bias", None)


class AffineMap(MatrixForm, RemadeMap):
    """A map that computes ``matrix x + constant``."""

    def weight_is_drawn(self) -> None:
        """Set the parameters that follow from the first ``weight``. Called once, under ``torch.no_grad``."""


def affine_form(module: Any) -> tuple[Tensor, Tensor | None] | None:
    """Return the matrix and the constant of a linear map or embedding; None for a class that does not expose them."""
    if isinstance(module, MatrixForm):
        return module.matrix(), module.constant()
    return (module.weight, getattr(module, "bias", None)) if type(module) in (nn.Linear, nn.Embedding) else None


class MapWith(RemadeMap):
    """A linear map, W ``(out, in)``, with a module before it or behind it, which it has as an attribute ``name``."""

    def __init__(self, linear: nn.Linear, name: str, module: nn.Module, before: bool = True) -> None:
        super().__init__(linear)
        setattr(self, name, module)
        self.name, self.before = name, before

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., in)`` to ``(..., out)``."""
        module = getattr(self, self.name)
        mapped: Tensor = F.linear(module(x) if self.before else x, self.weight, self.bias)
        return mapped if self.before else module(mapped)


def call_maps(attention: Any) -> None:
    """Make a stock attention call its four maps as modules, which may be more than linear maps.

    Otherwise it passes their bare weights to torch, unless kdim or vdim differ from its width.
    """
    attention.skip_embed_dim_check = True


def replace_maps(layer: nn.Module, make: Callable[[nn.Linear], AffineMap], design: StackDesign) -> None:
    """Replace every linear map of a layer.

    Args:
        layer: its maps are replaced in place.
        make: returns the replacement of a map.
        design: the stack's design; the error names its choices.

    Raises:
        UserError: another part has replaced one of them already.
    """
    for name, linear in [(name, one) for name, one in layer.named_modules() if isinstance(one, nn.Linear)]:
        if type(linear) is not nn.Linear:
            flags = ", ".join(
                f"{flag(a.value)} {design.choice(a)}" for a in (Axis.NORM_POSITION, Axis.ATTENTION, Axis.BIAS)
            )
            form = design.choice(Axis.REPARAM)
            raise UserError(f"--reparam {form} needs plain linear maps, and {name} is none; choose others: {flags}")
        owner, _, attribute = name.rpartition(".")
        setattr(layer.get_submodule(owner), attribute, make(linear))
    for module in layer.modules():
        if isinstance(module, MultiheadAttention):
            call_maps(module)


part(Axis.BIAS, "vector", summary="a vector each, as in the original Transformer")(lambda layer, design: None)
part(Axis.REPARAM, "plain", summary="a matrix each, as in the original Transformer")(lambda layer, design: None)
