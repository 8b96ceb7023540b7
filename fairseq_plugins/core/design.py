"""The design of one stack: its shape and the finished products of its six parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Sequence, Tuple

from torch import nn

from fairseq_plugins.core.attention import AttentionPlan
from fairseq_plugins.core.history import History
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
        place: NormPlace = self.choices.norm.build()
        return place

    @property
    def attention(self) -> AttentionPlan:
        """The attention classes."""
        plan: AttentionPlan = self.choices.attention.build()
        return plan

    def residuals(self, sites: Tuple[Site, ...], depth: int) -> Dict[Site, Residual]:
        """New junctions of the layer at ``depth``."""
        junctions: Dict[Site, Residual] = self.choices.residual.build(sites, depth, self.shape)
        return junctions

    def history(self) -> History:
        """A new history."""
        history: History = self.choices.history.build(self.shape)
        return history

    def initialise(self, layers: Sequence[nn.Module]) -> None:
        """Draw the weights of the stack's layers. Call under ``torch.no_grad``."""
        self.choices.base_init.build(layers, self.shape)
        self.choices.init.build(layers, self.shape)
