"""Residual connections: where a branch joins the stream.

A layer owns one for each of its sub-layers, as a module, so that diagnostics can hook it and so that its parameters
have names next to the stock ones. A part builds those of a layer together, so that they can share a parameter.
"""

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.core.design import Constant, StackDesign
from fairseq_plugins.core.method import PARTS, Axis, NewParameter, Site, part
from fairseq_plugins.core.norm import NormPlace, norms_always


class Residual(nn.Module):
    """A residual connection. Every tensor is ``(T, B, C)``, except extra streams: see :class:`ExtraStreams`."""

    def forward(self, branch: Tensor, stream: Tensor, layer_input: Tensor) -> Tensor:
        """Add the branch to the stream.

        Args:
            branch: output of the sub-layer after its dropout.
            stream: input of the sub-layer, before any LayerNorm.
            layer_input: input of the layer, before any LayerNorm.
        """
        return stream + branch

    def after_norm(self, x: Tensor, layer_input: Tensor) -> Tensor:
        """Change the output of the LayerNorm that follows the sum; by default do nothing."""
        return x

    def stream_scale(self) -> Tensor | None:
        """Return s if this computes just ``s * stream + branch``, else ``None``. Shape (C) or (1)."""
        return None

    def branch_scale(self) -> Tensor | None:
        """Return s if this computes just ``stream + s * branch``, else ``None``. Shape (C) or (1)."""
        return None

    def pre(self, stream: Tensor, extra: Tensor) -> tuple[Tensor, Any]:
        """Return the sub-layer's input, before any LayerNorm, and any value for :meth:`post`; by default ``extra``."""
        return stream, extra

    def post(self, branch: Tensor, stream: Tensor, extra: Any) -> Tensor:
        """Return the extra streams after this sub-layer, by default unchanged.

        Args:
            branch: output of the branch after its dropout and its norm, ``(T, B, C)``.
            stream: the input of the sub-layer, ``(T, B, C)``, before any LayerNorm.
            extra: the second result of :meth:`pre`.
        """
        return extra


class ExtraStreams(nn.Module):
    """Streams besides the main one, in one tensor. The residual connections read and update them.

    One stream is ``(T, B, C)``; several are ``(K, T, B, C)`` or ``(T, B, K, C)``.
    """

    def start(self, x: Tensor) -> Tensor:
        """Return the extra streams below the first layer, from the embedding ``(T, B, C)``; by default that."""
        return x

    def finish(self, x: Tensor, extra: Tensor) -> Tensor:
        """Return the output of the layers, ``(T, B, C)``, below the norm on top, from all streams."""
        return x


def at_each_site(name: str, shape: str, initial: str, buffer: bool = False) -> tuple[NewParameter, ...]:
    """Declare a parameter of every sub-layer's residual connection, for ``Part.parameters``.

    Args:
        name: its name in the residual connection.
        shape: as the documentation shows, such as ``(C)``.
        initial: see :class:`NewParameter`.
        buffer: whether the value is stored, and not trained.
    """
    return tuple(NewParameter(f"{site.value}_residual.{name}", shape, initial, buffer) for site in Site)


class ConstantSum(Residual):
    """a * stream + b * branch with constants, which are not in the state dict. Shapes ``(T, B, C)``."""

    def __init__(self, stream: float = 1.0, branch: float = 1.0) -> None:
        super().__init__()
        self.stream, self.branch = Constant(stream), Constant(branch)

    def forward(self, branch: Tensor, stream: Tensor, layer_input: Tensor) -> Tensor:
        """Return the weighted sum of stream and branch."""
        if torch.compiler.is_compiling():
            return self.stream() * stream + self.branch() * branch
        of_stream, of_branch = self.stream.number, self.branch.number
        if of_branch == 1:
            return torch.add(branch, stream, alpha=of_stream)
        return torch.add(stream if of_stream == 1 else of_stream * stream, branch, alpha=of_branch)

    def stream_scale(self) -> Tensor | None:
        """Return the constant, ``(1)``."""
        return torch.full((1,), self.stream.number) if self.branch.number == 1 else None

    def branch_scale(self) -> Tensor | None:
        """Return the constant, ``(1)``."""
        return torch.full((1,), self.branch.number) if self.stream.number == 1 else None


class PlainResidual(ConstantSum):
    """stream + branch. Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.1."""

    forward = Residual.forward


def needs_norm_after(design: StackDesign, config: Any) -> list[str]:
    """``Part.conflicts`` where a LayerNorm has to follow each sum: that of Post-LN, or of a norm place of that name."""
    name, place = design.choice(Axis.RESIDUAL), design.choice(Axis.NORM_POSITION)
    if place == name or norms_always(design, NormPlace.AFTER):
        return []
    wanted = f"{name} or post" if name in PARTS[Axis.NORM_POSITION] else "post"
    return [f"--residual {name} needs a LayerNorm after each sum: use --norm-position {wanted}, not {place}"]


def only_branches(design: StackDesign, config: Any) -> list[str]:
    """``Part.conflicts`` of extra streams that alone feed the sub-layers: what changes the stream has no effect."""
    norm, history = design.parts[Axis.NORM_POSITION], design.choice(Axis.LAYER_AGGREGATION)
    places = [norm.build(site, depth, design) for site in Site for depth in range(1, design.layers + 1)]
    what = f"--residual {design.choice(Axis.RESIDUAL)} has streams of its own: it needs"
    problems = (
        [f"{what} --norm-position pre, not {norm.name}"] if any(NormPlace.AFTER in place for place in places) else []
    )
    return problems + ([f"{what} --layer-aggregation last, not {history}"] if history != "last" else [])


part(Axis.RESIDUAL, "plain", summary="stream + branch, as in the original Transformer")(
    lambda sites, depth, design: {site: PlainResidual() for site in sites}
)
