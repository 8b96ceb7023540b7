"""Norm: where a sub-layer and the top of a stack have LayerNorms, and what replaces them.

A part of this axis is built with ``build(site, depth, design) -> {place: factory}``, once for each sub-layer: a
sub-layer may have a norm at any of the four places of :class:`NormPlace`, or none, and each is a module of its own. A
factory makes the module from its width. ``Part.top`` makes the norm on top of the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import torch.nn.functional as F
from fairseq.modules import LayerNorm
from torch import Tensor, nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.method import Axis, Option, Site, part
from fairseq_plugins.errors import UserError


class NormPlace(str, Enum):
    """A place for a norm in a sub-layer, in the order of the forward pass."""

    BEFORE = "before"
    """Before the branch; it reads the stream."""
    INSIDE = "inside"
    """Before the last map of the branch: ``out_proj`` of an attention, ``fc2`` of a feed-forward."""
    BRANCH = "branch"
    """On the branch, after its dropout and before the sum."""
    AFTER = "after"
    """After the sum."""


NormFactory = Callable[[int], nn.Module]
NormPlaces = Mapping[NormPlace, NormFactory]


def layer_norm(width: int) -> nn.Module:
    """Make a LayerNorm: the factory of most places."""
    module: nn.Module = LayerNorm(width)
    return module


def stock_top_norm(width: int) -> nn.Module:
    """Make the LayerNorm that fairseq itself builds on top of a stack, unless ``--no-decoder-final-norm`` is set."""
    return layer_norm(width)


def layer_norms(module: nn.Module) -> list[nn.Module]:
    """Return every LayerNorm inside ``module``."""
    return [one for one in module.modules() if isinstance(one, nn.LayerNorm)]


class AffineNorm(nn.Module):
    """In the place of a norm, ``scale * x + shift`` with two scalars, which the maps that read it can absorb."""

    def affine(self) -> tuple[Tensor, Tensor]:
        """Return scale and shift, each ``(1)``."""
        raise NotImplementedError


class NormedLinear(nn.Linear):
    """A linear map after a norm: W norm(x) + b. Keeps weight and bias of ``linear``, ``(out, in)``, and their names."""

    def __init__(self, linear: nn.Linear, norm: nn.Module) -> None:
        nn.Module.__init__(self)  # nn.Linear's would draw a weight that is not used
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., in)`` to ``(..., out)``."""
        return F.linear(self.norm(x), self.weight, self.bias)


def norm_inside(owner: Any, name: str, factory: NormFactory) -> None:
    """Put a norm before the linear map ``name`` of ``owner``, an attention or a layer.

    Raises:
        UserError: there is no such map, or another part has replaced it.
    """
    linear = getattr(owner, name, None)
    if type(linear) is not nn.Linear:
        raise UserError(
            f"a LayerNorm inside the branch goes in front of {name}, which in this model is not a plain linear "
            "map: choose another --norm, --attention or --bias"
        )
    setattr(owner, name, NormedLinear(linear, factory(linear.in_features)))
    # Stock attention passes the bare weights to torch and skips the modules, unless it believes that its sizes differ.
    if hasattr(owner, "skip_embed_dim_check"):
        owner.skip_embed_dim_check = True


TOP_NORM = Option(
    "norm_on_top",
    "no",
    "one LayerNorm on top of each stack",
    choices=("no", "yes"),
)
"""For norms whose places include no norm on top."""


def _top_if_asked(design: StackDesign) -> NormFactory | None:
    return layer_norm if design.options.norm_on_top == "yes" else None


def _no_other_norm(design: StackDesign, config: Any) -> list[str]:
    if config.layernorm_embedding:
        return ["--norm none removes every LayerNorm, but --layernorm-embedding asks for one: drop one of the two"]
    return []


@part(Axis.NORM, "post", summary="LayerNorm after the sum")
def post(site: Site, depth: int, design: StackDesign) -> NormPlaces:
    """Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.1."""
    return {NormPlace.AFTER: layer_norm}


@part(
    Axis.NORM,
    "pre",
    summary="LayerNorm before the branch, one more on top",
    top=lambda design: stock_top_norm,
)
def pre(site: Site, depth: int, design: StackDesign) -> NormPlaces:
    """Stock fairseq's ``normalize_before``."""
    return {NormPlace.BEFORE: layer_norm}


@part(
    Axis.NORM,
    "branch",
    summary="LayerNorm on the branch, after its dropout and before the sum",
    top=_top_if_asked,
    options=(TOP_NORM,),
    no_fold="stock fairseq has no LayerNorm between a branch and its sum",
)
def branch(site: Site, depth: int, design: StackDesign) -> NormPlaces:
    """Bachlechner et al. 2021, https://arxiv.org/abs/2003.04887, table 3."""
    return {NormPlace.BRANCH: layer_norm}


@part(
    Axis.NORM,
    "none",
    summary="no LayerNorm in the layers",
    top=_top_if_asked,
    options=(TOP_NORM,),
    conflicts=_no_other_norm,
    no_fold="stock fairseq has no Transformer without LayerNorm",
)
def nowhere(site: Site, depth: int, design: StackDesign) -> NormPlaces:
    """No place has a norm."""
    return {}
