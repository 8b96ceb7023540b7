"""Sub-layers: their names, the order in which they run, and the modules of each.

A name is the one in the state dict, ``encoder.layers.2.ffn``, so layers count from 0. Everything that users see shows
this name; depth, which counts from 1, is for formulas.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from fairseq_plugins.core.method import Site
from fairseq_plugins.core.norm import NormPlace
from fairseq_plugins.core.residual import Residual

SUB_LAYER_NORMS = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")
NORM_OF = dict(zip(Site, SUB_LAYER_NORMS, strict=True))
"""Name of the first norm of each site, at any place."""
RESIDUAL_OF = {site: f"{site.value}_residual" for site in Site}
"""Name of the residual connection of each site."""


LAST_MAP = {Site.SELF: ("self_attn", "out_proj"), Site.CROSS: ("encoder_attn", "out_proj"), Site.FFN: ("", "fc2")}
"""Module and linear map at the end of the branch of each site."""

_SITES = {**{site.value: site for site in Site}, "fc": Site.FFN, "final": Site.FFN}
"""Prefixes of module names in a layer, and the site that each belongs to."""
# The encoder for speech calls its list transformer_layers. Wrappers add a name that begins with an underscore.
_IN_A_LAYER = re.compile(
    rf"(?P<layer>(?P<stack>.+)\.(?:transformer_)?layers\.(?P<number>\d+))\.(?:_\w+\.)*(?P<begins>{'|'.join(_SITES)})?"
)


class Place(NamedTuple):
    """The position of a parameter or a module in a stack.

    Attributes:
        stack: ``encoder`` or ``decoder``.
        number: number of its layer, from 0.
        site: which sub-layer; None if it belongs to none.
        name: name of the sub-layer, or of the layer if there is no site.
    """

    stack: str
    number: int
    site: Site | None
    name: str


def place_of(name: str) -> Place | None:
    """Return the place of a name in the state dict, ``encoder.layers.2.fc1.weight`` say; None outside the layers."""
    parts = _IN_A_LAYER.match(name)
    if parts is None:
        return None
    site, layer = _SITES.get(parts["begins"]), parts["layer"]
    return Place(parts["stack"], int(parts["number"]), site, f"{layer}.{site.value}" if site else layer)


def forward_order(name: str) -> tuple[int, int, int, int, str]:
    """Sort key for names, in the order in which a forward pass meets them.

    Returns:
        stack; below, in or above its layers; number of the layer; site; the name itself.
    """
    stack, place = int(not name.startswith("encoder")), place_of(name)
    if place is None:
        below = "embed" in name or "subsample" in name
        return stack, 0 if below else 2, 0, 0, name
    site = len(Site) if place.site is None else list(Site).index(place.site)
    return stack, 1, place.number, site, name


@dataclass(frozen=True, eq=False)
class SubLayer:
    """One sub-layer of a model.

    Attributes:
        name: name in the state dict, e.g. ``encoder.layers.2.ffn``.
        stack: ``encoder`` or ``decoder``.
        number: number of its layer, from 0.
        site: which sub-layer of its layer.
        layer: the layer.
        residual: its residual connection.
        norms: its norms by place, except one inside the branch.
    """

    name: str
    stack: str
    number: int
    site: Site
    layer: Any
    residual: Residual
    norms: Mapping[NormPlace, nn.Module]

    @property
    def norm(self) -> nn.Module | None:
        """The last of its norms."""
        return list(self.norms.values())[-1] if self.norms else None

    def beside(self, module: str) -> str:
        """Return the name in the state dict of another module of the layer."""
        return f"{self.name.removesuffix(self.site.value)}{module}"


def sub_layers(model: nn.Module) -> list[SubLayer]:
    """Return every sub-layer of ``model`` in the order in which they run."""
    every = []
    # Iterating over the layers themselves would let LayerDrop skip some of them.
    for path, module in model.named_modules():
        place = place_of(path)
        if isinstance(module, Residual) and place is not None and place.site is not None:
            layer: Any = model.get_submodule(path.rpartition(".")[0])
            norms = {at: getattr(layer, name) for at, name in layer.norm_names[place.site].items()}
            every.append(SubLayer(place.name, place.stack, place.number, place.site, layer, module, norms))
    return sorted(every, key=lambda sub: forward_order(sub.name))


def sites_of(layer: nn.Module) -> tuple[Site, ...]:
    """Return the sites at which ``layer`` has a sub-layer, in the order in which they run."""
    return tuple(site for site in Site if hasattr(layer, RESIDUAL_OF[site]))
