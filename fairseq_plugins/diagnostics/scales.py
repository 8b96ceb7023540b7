"""What weighs branches and streams: omega (Liu et al., EMNLP 2020, figure 8), alpha (Bachlechner et al., UAI 2021,
figure 6), and the weights of a history (Wang et al., ACL 2019).

Nothing asks for them by name. A junction is linear in branch, stream and layer input, so its weights are what it makes
of a one in the place of each and zeros in the others; a history likewise, with its LayerNorms taken out.
"""  # noqa: D205

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from fairseq_plugins.core.history import mixing_weights
from fairseq_plugins.core.norm import NormPlace
from fairseq_plugins.core.sub_layers import SubLayer, sub_layers

DEAD = 0.01
"""A branch whose weight is smaller in absolute value adds next to nothing: its gate is dead."""


MOST_NAMED = 8


def dead_gates(label: str, dead: Sequence[str], gates: int, when: str = "") -> list[str]:
    """A line that names the first of the dead gates, or nothing."""
    if not dead:
        return []
    named = ", ".join(dead[:MOST_NAMED]) + (f" and {len(dead) - MOST_NAMED} more" if len(dead) > MOST_NAMED else "")
    return [f"{label}: {len(dead)} of {gates} gates dead{when} (branch weighted by less than {DEAD}): {named}"]


class Scale(NamedTuple):
    """Weights at one junction; means over the width, and the smallest and largest of the stream's.

    Layers count from 0.
    """

    stack: str
    layer: int
    site: str
    branch: float
    stream: float
    stream_least: float
    stream_most: float
    layer_input: float

    @property
    def dead(self) -> bool:
        """Whether the branch is as good as switched off."""
        return abs(self.branch) < DEAD

    @property
    def name(self) -> str:
        """Of its sub-layer in the state dict."""
        return f"{self.stack}.layers.{self.layer}.{self.site}"


class Mixture(NamedTuple):
    """Weight of state ``of`` (0: the embedding, k: the output of layer k - 1) in the input of ``layer``.

    Layers count from 0; one more is the output of the stack.
    """

    stack: str
    layer: int
    of: int
    weight: float


def scales(model: Any) -> list[Scale]:
    """Every junction of the model, the encoder's first."""
    with torch.no_grad():
        return [_scale(sub, model_width(model, sub.stack)) for sub in sub_layers(model)]


def model_width(model: Any, stack: str) -> int:
    """Width of a stack."""
    width: int = getattr(model, stack).design.width
    return width


def _scale(sub: SubLayer, width: int) -> Scale:
    branch, stream, layer_input = (
        sub.residual(*one).flatten() for one in torch.eye(3).view(3, 3, 1, 1, 1).expand(3, 3, 1, 1, width)
    )
    if NormPlace.AFTER in sub.norms:
        # A connection that joins behind the norm, where nothing else does.
        zeros = torch.zeros(1, 1, width)
        layer_input = layer_input + sub.residual.after_norm(zeros, zeros + 1).flatten()
    return Scale(
        sub.stack,
        sub.number,
        sub.site.value,
        float(branch.mean()),
        float(stream.mean()),
        float(stream.min()),
        float(stream.max()),
        float(layer_input.mean()),
    )


def mixtures(model: Any) -> list[Mixture]:
    """Weights of the histories, of every stack whose layers read more than the one below; else nothing."""
    found = []
    for name, stack in model.stacks():
        table = mixing_weights(stack)
        # A plain stack reads only the layer below, with weight one.
        if not torch.equal(table, torch.eye(len(table))):
            for layer, row in enumerate(table.tolist()):
                found += [Mixture(name, layer, of, weight) for of, weight in enumerate(row[: layer + 1])]
    return found
