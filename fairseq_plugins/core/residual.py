"""Residual junctions: where a branch joins the stream.

A layer owns one junction for each of its sub-layers, as a module, so that diagnostics can hook it and so that
its parameters have names beside the stock ones (``self_attn_residual``, ``encoder_attn_residual``,
``ffn_residual``). A part of this axis is built with ``build(sites, depth, shape) -> {site: Residual}`` for one
layer at a time, so that sub-layers of a layer can share a parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.core.method import Axis, Choices, Part, Shape, Site, register_part


class Residual(nn.Module):
    """A junction. Shapes: every tensor is ``(T, B, C)``."""

    def forward(self, branch: Tensor, stream: Tensor, layer_input: Tensor) -> Tensor:
        """Join.

        Args:
            branch: output of the sub-layer after its dropout.
            stream: input of the sub-layer, before any LayerNorm.
            layer_input: input of the layer, before any LayerNorm.
        """
        return stream + branch

    def after_norm(self, x: Tensor, layer_input: Tensor) -> Tensor:
        """A last change after the LayerNorm that follows the junction (Post-LN only); none by default."""
        return x

    def stream_scale(self) -> Tensor | None:
        """The s of ``s * stream + branch`` where that is all the junction does, else ``None``. Shape (C) or (1)."""
        return None


class PlainResidual(Residual):
    """stream + branch. Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.1."""

    def stream_scale(self) -> Tensor | None:
        """One."""
        return torch.ones(1)


class ScaledStream(Residual):
    """scale * stream + branch with a constant scale, which is no part of the state dict. Shapes ``(T, B, C)``."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, branch: Tensor, stream: Tensor, layer_input: Tensor) -> Tensor:
        """Join."""
        return torch.add(branch, stream, alpha=self.scale)

    def stream_scale(self) -> Tensor | None:
        """The constant, ``(1)``."""
        return torch.full((1,), self.scale)

    def extra_repr(self) -> str:
        """The constant."""
        return f"scale={self.scale:.4f}"


def needs_norm_after(name: str) -> Callable[[Choices, Shape, Any], list[str]]:
    """``conflicts`` of the part ``name`` of this axis whose junctions scale the stream.

    Without the LayerNorm that follows, every scale would multiply the stream of all layers above.
    """

    def conflicts(choices: Choices, shape: Shape, config: Any) -> list[str]:
        if choices.norm.build(shape).after:
            return []
        place = choices.norm.name
        return [f"--residual {name} scales the stream for the LayerNorm after it: it needs --norm post, not {place}"]

    return conflicts


def build_plain(sites: tuple[Site, ...], depth: int, shape: Shape) -> dict[Site, Residual]:
    """A plain sum at every site."""
    return {site: PlainResidual() for site in sites}


register_part(Part(Axis.RESIDUAL, "plain", build_plain, summary="stream + branch, as in the original Transformer"))
