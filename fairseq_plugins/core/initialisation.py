"""Initialisation: the base distribution of the weights, and what a method does to it.

fairseq has changed its own default twice without saying so (the Xavier gain and the biases of q, k, v in 2019-10,
the feed-forward matrices in 2020-03), so the papers' numbers and today's stock model start from different
networks. The base is therefore a choice of its own. Parts of both axes are built with ``build(layers, shape)``,
which changes the layers of one stack in place, under ``torch.no_grad``; ``layers[0]`` has depth 1.
"""

from __future__ import annotations

from typing import Iterator, Sequence, Tuple

from torch import nn

from fairseq_plugins.core.attention import Attention
from fairseq_plugins.core.method import Axis, Part, Shape, register_part


def linear_maps(layer: nn.Module) -> Iterator[Tuple[str, nn.Linear]]:
    """Every linear map of a layer with its name, each once: q, k, v and out of each attention, fc1, fc2."""
    for name, module in layer.named_modules():
        if isinstance(module, nn.Linear):
            yield name, module


def keep(layers: Sequence[nn.Module], shape: Shape) -> None:
    """Change nothing."""


def xavier(layers: Sequence[nn.Module], shape: Shape) -> None:
    """Xavier uniform for every matrix, zero for every bias: fairseq before 2019-10-25.

    Glorot and Bengio 2010: U(-b, b) with b = gain * sqrt(6 / (fan_in + fan_out)). The gain is 1, but for the q, k
    and v maps :attr:`Attention.xavier_input_gain` where all three are square, as in fairseq.
    """
    for layer in layers:
        gains = {
            id(projection): module.xavier_input_gain
            for module in layer.modules()
            if isinstance(module, Attention) and module.qkv_same_dim
            for projection in (module.q_proj, module.k_proj, module.v_proj)
        }
        for _, linear in linear_maps(layer):
            nn.init.xavier_uniform_(linear.weight, gain=gains.get(id(linear), 1.0))
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)


register_part(Part(Axis.INIT, "keep", keep, summary="the base initialisation as it is"))
register_part(Part(Axis.BASE_INIT, "fairseq", keep, summary="what today's stock fairseq draws"))
register_part(Part(Axis.BASE_INIT, "xavier", xavier, summary="Xavier uniform, zero biases: what the papers assume"))
