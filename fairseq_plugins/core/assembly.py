"""What the parts of a design build: the modules of layers and stacks, and their first weights.

Norms are built in :mod:`fairseq_plugins.core.norm`, since parts of other axes ask where they are.
"""

from __future__ import annotations

from torch import nn

from fairseq_plugins.core.affine_map import AffineMap
from fairseq_plugins.core.attention import AttentionPlan
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.history import History
from fairseq_plugins.core.initialisation import StackWeights
from fairseq_plugins.core.method import Axis, Site
from fairseq_plugins.core.residual import Residual, SideStream


def attention(design: StackDesign, depth: int) -> AttentionPlan:
    """Return the factories of the attentions of the layer at ``depth``, which counts from 1."""
    plan: AttentionPlan = design.parts[Axis.ATTENTION].build(depth, design)
    return plan


def residuals(design: StackDesign, sites: tuple[Site, ...], depth: int) -> dict[Site, Residual]:
    """Make the residual connections of the layer at ``depth``, which has sub-layers at ``sites``."""
    made: dict[Site, Residual] = design.parts[Axis.RESIDUAL].build(sites, depth, design)
    return made


def side_stream(design: StackDesign) -> SideStream | None:
    """Make the second stream of the stack, for residual connections that keep one."""
    made: SideStream | None = design.parts[Axis.RESIDUAL].side_stream(design)
    return made


def history(design: StackDesign) -> History:
    """Make the history of the stack."""
    made: History = design.parts[Axis.HISTORY].build(design)
    return made


def set_biases(layer: nn.Module, design: StackDesign) -> None:
    """Give the linear maps of a new layer their biases."""
    design.parts[Axis.BIAS].build(layer, design)


def set_weight_forms(layer: nn.Module, design: StackDesign) -> None:
    """Change what the linear maps of a new layer multiply by; call it last."""
    design.parts[Axis.WEIGHT_FORM].build(layer, design)


def initialise(weights: StackWeights, design: StackDesign) -> None:
    """Draw the weights of the stack. Call under ``torch.no_grad``."""
    design.parts[Axis.BASE_INIT].build(weights, design)
    design.parts[Axis.INIT].build(weights, design)
    for layer in weights.layers:
        for module in layer.modules():
            if isinstance(module, AffineMap):
                module.weight_is_drawn()
