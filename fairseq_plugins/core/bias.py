"""Bias: what the linear maps of a layer add to their product.

A part of this axis is built with ``build(layer, design) -> None``, which changes the maps of one new layer in place:
``q_proj, k_proj, v_proj, out_proj`` of its attentions, ``fc1`` and ``fc2``. See
:class:`~fairseq_plugins.core.affine_map.AffineMap`.
"""

from __future__ import annotations

from torch import nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, part


@part(Axis.BIAS, "vector", summary="a vector each, as in the original Transformer")
def keep_vectors(layer: nn.Module, design: StackDesign) -> None:
    """Change nothing."""
