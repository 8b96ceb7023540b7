"""The design of one stack: its sizes, its nine parts, and what they build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

from torch import nn

from fairseq_plugins.core.affine_map import AffineMap
from fairseq_plugins.core.method import Axis, Part, Site, Stack
from fairseq_plugins.core.norm import is_replaceable, made_of

if TYPE_CHECKING:
    from fairseq_plugins.core.attention import AttentionPlan
    from fairseq_plugins.core.history import History
    from fairseq_plugins.core.initialisation import StackWeights
    from fairseq_plugins.core.norm import NormFactory, NormPlace, NormPlaces
    from fairseq_plugins.core.residual import Residual, SideStream


@dataclass(frozen=True)
class StackDesign:
    """Everything a stack is built from. Parts read it; layers and stacks get their modules from it.

    Attributes:
        stack: the stack that is being built.
        parts: the chosen part of each axis.
        encoder_layers: number of encoder layers, N; 0 in a language model.
        decoder_layers: number of decoder layers, M.
        width: model width d of this stack.
        ffn_width: width f of the feed-forward sub-layers of this stack.
        heads: attention heads of this stack.
        activation_dropout: rate of the dropout after an activation.
        options: values of the options that the registered parts declare, by attribute.
    """

    stack: Stack
    parts: Mapping[Axis, Part]
    encoder_layers: int
    decoder_layers: int
    width: int
    ffn_width: int
    heads: int
    activation_dropout: float
    options: SimpleNamespace

    @property
    def layers(self) -> int:
        """Number of layers of this stack."""
        return self.encoder_layers if self.stack is Stack.ENCODER else self.decoder_layers

    def choice(self, axis: Axis) -> str:
        """Name of the part on ``axis``."""
        return self.parts[axis].name

    def norms(self, site: Site, depth: int) -> NormPlaces:
        """Factories of the norms of one sub-layer, by place; ``depth`` of its layer counts from 1."""
        places: NormPlaces = self.parts[Axis.NORM].build(site, depth, self)
        return {place: made_of(factory, self.norm_module(site)) for place, factory in places.items()}

    def norms_always(self, place: NormPlace) -> bool:
        """Whether every sub-layer of the stack has a norm at ``place``."""
        return all(place in self.norms(site, depth) for site in Site for depth in range(1, self.layers + 1))

    def top_norm(self) -> NormFactory | None:
        """Factory of the norm on top of the layers, if there is one."""
        factory = self.parts[Axis.NORM].top(self)
        return None if factory is None else made_of(factory, self.norm_module(None))

    def norm_module(self, site: Site | None) -> NormFactory:
        """Factory of the modules that stand where a LayerNorm would; ``site`` is None on top of the stack."""
        factory: NormFactory = self.parts[Axis.NORM_MODULE].build(site, self)
        return factory

    def has_replaceable_norms(self) -> bool:
        """Whether the layers have a norm that the module decides about."""
        norm = self.parts[Axis.NORM]
        depths = range(1, self.layers + 1)
        return any(
            is_replaceable(one) for site in Site for depth in depths for one in norm.build(site, depth, self).values()
        )

    def attention(self, depth: int) -> AttentionPlan:
        """Factories of the attentions of the layer at ``depth``."""
        plan: AttentionPlan = self.parts[Axis.ATTENTION].build(depth, self)
        return plan

    def residuals(self, sites: tuple[Site, ...], depth: int) -> dict[Site, Residual]:
        """New residual connections of the layer at ``depth``."""
        residuals: dict[Site, Residual] = self.parts[Axis.RESIDUAL].build(sites, depth, self)
        return residuals

    def side_stream(self) -> SideStream | None:
        """The second stream of the stack, for residual connections that keep one."""
        return self.parts[Axis.RESIDUAL].side_stream(self)

    def history(self) -> History:
        """A new history."""
        history: History = self.parts[Axis.HISTORY].build(self)
        return history

    def set_biases(self, layer: nn.Module) -> None:
        """Give the linear maps of a new layer their biases."""
        self.parts[Axis.BIAS].build(layer, self)

    def set_weight_forms(self, layer: nn.Module) -> None:
        """Change what the linear maps of a new layer multiply by; call it last."""
        self.parts[Axis.WEIGHT_FORM].build(layer, self)

    def initialise(self, weights: StackWeights) -> None:
        """Draw the weights of the stack. Call under ``torch.no_grad``."""
        self.parts[Axis.BASE_INIT].build(weights, self)
        self.parts[Axis.INIT].build(weights, self)
        for layer in weights.layers:
            for module in layer.modules():
                if isinstance(module, AffineMap):
                    module.weight_is_drawn()
