"""Norm: where a sub-layer and the top of a stack have LayerNorms, and what replaces them.

A sub-layer may have a norm at any of the places of :class:`NormPlace`, or none; a factory makes each from its width.

Norm module: the module at these places, a LayerNorm unless its axis has another. It replaces the factories
:func:`layer_norm`, :func:`scaled` and :func:`stock_top_norm`; a norm place with a factory of its own keeps it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import torch.nn.functional as F
from fairseq.modules import LayerNorm, MultiheadAttention
from torch import Tensor, nn

from fairseq_plugins.core.design import Constant, StackDesign
from fairseq_plugins.core.linear_maps import MapWith, call_maps
from fairseq_plugins.core.method import Axis, NewParameter, Option, Site, part
from fairseq_plugins.errors import UserError


class NormPlace(str, Enum):
    """A place for a norm in a sub-layer, in the order of the forward pass."""

    BEFORE = "before"
    """Before the branch; it reads the stream."""
    INSIDE = "inside"
    """Before the last map of the branch: ``out_proj`` of an attention, ``fc2`` of a feed-forward."""
    BRANCH = "branch"
    """Behind the branch, after its dropout and before the sum."""
    AFTER = "after"
    """After the sum of stream and branch."""


NormFactory = Callable[[int], nn.Module]
NormPlaces = Mapping[NormPlace, NormFactory]


def layer_norm(width: int) -> nn.Module:
    """Make a LayerNorm: the factory of most places."""
    return LayerNorm(width)


def stock_top_norm(width: int) -> nn.Module:
    """Make the LayerNorm that fairseq itself builds on top of a stack, unless ``--no-decoder-final-norm`` is set."""
    return layer_norm(width)


def layer_norm_parameters(*names: str, shape: str = "(C)") -> tuple[NewParameter, ...]:
    """Declare gain and bias of the LayerNorms ``names``, for ``Part.parameters``."""
    return tuple(
        NewParameter(f"{name}.{one}", shape, initial)
        for name in names
        for one, initial in (("weight", "1"), ("bias", "0"))
    )


def layer_norms(module: nn.Module) -> list[nn.Module]:
    """Return every LayerNorm inside ``module``."""
    return [norm for norm in module.modules() if isinstance(norm, nn.LayerNorm)]


class AffineNorm(nn.Module):
    """Affine map with two scalars in place of a norm, ``scale * x + shift``; the linear maps after it can absorb it."""

    def affine(self) -> tuple[Tensor, Tensor]:
        """Return scale and shift, each ``(1)``."""
        raise NotImplementedError


class ScaledLayerNorm(nn.LayerNorm):
    """scale * LN(x) with a constant scale, which is not in the state dict. Any shape ``(..., C)``."""

    def __init__(self, width: int, scale: float) -> None:
        super().__init__(width)
        self.scale = Constant(scale)

    def forward(self, x: Tensor) -> Tensor:
        """Scale gain and bias instead of the output: they are smaller."""
        factor = self.scale()
        return F.layer_norm(x, self.normalized_shape, self.weight * factor, self.bias * factor, self.eps)


@dataclass(frozen=True)
class scaled:  # noqa: N801  (a factory, like the functions around it)
    """Factory of norms that are multiplied by a constant. The fold moves that of a LayerNorm into gain and bias."""

    scale: float

    def __call__(self, width: int) -> nn.Module:
        """Make a LayerNorm that has stock's names."""
        return ScaledLayerNorm(width, self.scale)


def is_replaceable(factory: NormFactory) -> bool:
    """Return whether the norm module decides what ``factory`` makes."""
    return factory in (layer_norm, stock_top_norm) or isinstance(factory, scaled)


def made_of(factory: NormFactory, module: NormFactory) -> NormFactory:
    """Return ``factory``, or one that makes ``module`` in the same place, if ``factory`` leaves that open."""
    if module is layer_norm or not is_replaceable(factory):
        return factory
    return partial(_times, factory.scale, module) if isinstance(factory, scaled) else module


def _times(scale: float, module: NormFactory, width: int) -> nn.Module:
    """Make a norm whose output is multiplied by a constant; its parameters keep their names."""
    norm = module(width)
    norm.register_forward_hook(partial(_multiply, Constant(scale)))
    return norm


def _multiply(scale: Constant, norm: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return output * scale()


def norm_module(design: StackDesign, site: Site | None) -> NormFactory:
    """Return the factory of the modules that stand where a LayerNorm would; ``site`` is None on top of the stack."""
    return design.parts[Axis.NORM_TYPE].build(site, design)


def placed_norms(design: StackDesign, site: Site, depth: int) -> dict[NormPlace, NormFactory]:
    """Return the factories of the norms of one sub-layer, by place; ``depth`` of its layer counts from 1."""
    places: NormPlaces = design.parts[Axis.NORM_POSITION].build(site, depth, design)
    return {place: made_of(factory, norm_module(design, site)) for place, factory in places.items()}


def top_norm(design: StackDesign) -> NormFactory | None:
    """Return the factory of the norm on top of the layers, if there is one."""
    factory = design.parts[Axis.NORM_POSITION].top(design)
    return None if factory is None else made_of(factory, norm_module(design, None))


def norms_always(design: StackDesign, place: NormPlace) -> bool:
    """Return whether every sub-layer of the stack has a norm at ``place``."""
    norm, depths = design.parts[Axis.NORM_POSITION], range(1, design.layers + 1)
    return all(place in norm.build(site, depth, design) for site in Site for depth in depths)


def needs_norms(design: StackDesign, config: Any) -> list[str]:
    """``Part.conflicts`` of norm modules: without a place for one, it would have no effect."""
    norm, depths = design.parts[Axis.NORM_POSITION], range(1, design.layers + 1)
    factories = [made for site in Site for depth in depths for made in norm.build(site, depth, design).values()]
    if any(map(is_replaceable, factories)):
        return []
    what = f"--norm-type {design.choice(Axis.NORM_TYPE)} has no effect here"
    return [f"{what}: --norm-position {norm.name} has no LayerNorm that it could replace"]


def norm_inside(owner: Any, name: str, factory: NormFactory, design: StackDesign) -> None:
    """Put a norm before a linear map.

    Args:
        owner: the attention or the layer that has the map.
        name: the attribute of the map in ``owner``.
        factory: returns a norm over as many features as the map takes.
        design: the stack's design.

    Raises:
        UserError: the map is missing, or another part has replaced it.
    """
    linear = getattr(owner, name, None)
    if type(linear) is not nn.Linear:
        norm, attention, bias = (design.choice(axis) for axis in (Axis.NORM_POSITION, Axis.ATTENTION, Axis.BIAS))
        raise UserError(
            f"--norm-position {norm} puts a norm in front of {name}, which with --attention {attention} and --bias "
            f"{bias} is not a plain linear map: choose another of the three"
        )
    setattr(owner, name, MapWith(linear, "norm", factory(linear.in_features)))
    if isinstance(owner, MultiheadAttention):
        call_maps(owner)


TOP_IF_ASKED: dict[str, Any] = {
    "top": lambda design: layer_norm if design.options.norm_on_top == "yes" else None,
    "options": (Option("norm_on_top", "no", "one LayerNorm on top of each stack", choices=("no", "yes")),),
}
"""Records of norms whose places include no norm on top."""


def no_other_norm(design: StackDesign, config: Any) -> list[str]:
    """``Part.conflicts`` of norms that leave no LayerNorm: refuse the one that would remain."""
    if not config.layernorm_embedding:
        return []
    norm = design.choice(Axis.NORM_POSITION)
    return [f"--norm-position {norm} leaves no LayerNorm, but --layernorm-embedding asks for one: drop one of the two"]


def norms_at(name: str, *places: NormPlace, **record: Any) -> None:
    """Register a norm position whose every sub-layer has LayerNorms at ``places``; ``record`` as of :func:`part`."""
    part(Axis.NORM_POSITION, name, **record)(lambda site, depth, design: dict.fromkeys(places, layer_norm))


# Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.1.
norms_at("post", NormPlace.AFTER, summary="LayerNorm after the sum")
norms_at("pre", NormPlace.BEFORE, summary="LayerNorm before the branch, one on top", top=lambda design: stock_top_norm)
# Bachlechner et al. 2021, https://arxiv.org/abs/2003.04887, table 2.
norms_at(
    "branch",
    NormPlace.BRANCH,
    summary="LayerNorm on the branch, after its dropout and before the sum",
    **TOP_IF_ASKED,
    no_fold="stock fairseq has no LayerNorm between a branch and its sum",
)
norms_at(
    "none",
    summary="no LayerNorm in the layers",
    **TOP_IF_ASKED,
    conflicts=no_other_norm,
    no_fold="stock fairseq has no Transformer without LayerNorm",
)


# Ba et al. 2016, https://arxiv.org/abs/1607.06450.
part(Axis.NORM_TYPE, "layer_norm", summary="LayerNorm, as in the original Transformer")(lambda site, design: layer_norm)
