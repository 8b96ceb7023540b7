"""Weight form: what the linear maps of a layer multiply by.

A part of this axis is built with ``build(layer, design) -> None``, which changes the maps of one new layer in place,
when all other parts have been. See :class:`~fairseq_plugins.core.affine_map.AffineMap`. ``Part.ends`` is for parts that
change the embedding and the output projection, too.
"""

from __future__ import annotations

from collections.abc import Callable

from fairseq.modules import MultiheadAttention
from torch import nn

from fairseq_plugins.core.affine_map import AffineMap
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, part
from fairseq_plugins.core.norm import call_maps
from fairseq_plugins.errors import UserError


def replace_maps(layer: nn.Module, make: Callable[[nn.Linear], AffineMap], design: StackDesign) -> None:
    """Replace every linear map of ``layer`` by what ``make`` makes of it.

    Raises:
        UserError: another part has replaced one of them already.
    """
    for name, linear in [(name, one) for name, one in layer.named_modules() if isinstance(one, nn.Linear)]:
        if type(linear) is not nn.Linear:
            flags = ", ".join(f"--{a.value} {design.choice(a)}" for a in (Axis.NORM, Axis.ATTENTION, Axis.BIAS))
            form = design.choice(Axis.WEIGHT_FORM)
            raise UserError(f"--weight-form {form} needs plain linear maps, and {name} is none; choose others: {flags}")
        owner, _, attribute = name.rpartition(".")
        setattr(layer.get_submodule(owner), attribute, make(linear))
    for module in layer.modules():
        if isinstance(module, MultiheadAttention):
            call_maps(module)


@part(Axis.WEIGHT_FORM, "plain", summary="a matrix each, as in the original Transformer")
def keep_matrices(layer: nn.Module, design: StackDesign) -> None:
    """Change nothing."""
