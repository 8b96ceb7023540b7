"""The design of one stack: its shape and the finished products of its seven parts."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fairseq_plugins.core.attention import AttentionPlan
from fairseq_plugins.core.history import History
from fairseq_plugins.core.initialisation import StackWeights
from fairseq_plugins.core.method import Choices, Shape, Site
from fairseq_plugins.core.norm import NormPlace
from fairseq_plugins.core.residual import Residual


@dataclass(frozen=True)
class StackDesign:
    """What the layers and the loop of a stack ask for while they are built."""

    choices: Choices
    shape: Shape

    @property
    def norm(self) -> NormPlace:
        """Where the LayerNorms of a layer stand."""
        place: NormPlace = self.choices.norm.build(self.shape)
        return place

    def attention(self, depth: int) -> AttentionPlan:
        """What makes the attentions of the layer at ``depth``."""
        plan: AttentionPlan = self.choices.attention.build(depth, self.shape)
        return plan

    def residuals(self, sites: tuple[Site, ...], depth: int) -> dict[Site, Residual]:
        """New junctions of the layer at ``depth``."""
        junctions: dict[Site, Residual] = self.choices.residual.build(sites, depth, self.shape)
        return junctions

    def history(self) -> History:
        """A new history."""
        history: History = self.choices.history.build(self.shape)
        return history

    def set_biases(self, layer: nn.Module) -> None:
        """Give the linear maps of a new layer their biases."""
        self.choices.bias.build(layer, self.shape)

    def initialise(self, weights: StackWeights) -> None:
        """Draw the weights of the stack. Call under ``torch.no_grad``."""
        self.choices.base_init.build(weights, self.shape)
        self.choices.init.build(weights, self.shape)
