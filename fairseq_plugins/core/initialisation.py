"""Initialisation: the base distribution of the weights, and what a method does to it.

fairseq has changed its own default twice without announcing it (the Xavier gain and the biases of q, k, v in 2019-10,
the feed-forward matrices in 2020-03), so the papers' numbers and today's stock model start from different networks. The
base is therefore a choice of its own. Parts of both axes change the weights of one stack in place, the encoder's first.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from fairseq_plugins.core.attention import Attention
from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.core.linear_maps import AffineMap
from fairseq_plugins.core.method import Axis, part

MULTIPLIERS = "factors"
"""Key of a parameter's ``optim_overrides``, and of a group of an optimizer."""


@dataclass(frozen=True)
class StackWeights:
    """The weights of one stack that an initialisation may change.

    Attributes:
        layers: its layers; ``layers[0]`` has depth 1.
        embedding: its token table or another module for its tokens; None if its input is not text, or if the table
            is also the encoder's, which was initialised before.
        output: the decoder's output projection if it has its own weight, else None.
        branches: number of sub-layers in the whole model, including the other stack.
        top_norm: the LayerNorm on top of the layers, or None.
    """

    layers: Sequence[Any]
    embedding: nn.Module | None = None
    output: nn.Module | None = None
    branches: int = 0
    top_norm: nn.Module | None = None


def initialise(weights: StackWeights, design: StackDesign) -> None:
    """Draw the weights of the stack. Call under ``torch.no_grad``."""
    design.parts[Axis.BASE_INIT].build(weights, design)
    design.parts[Axis.INIT].build(weights, design)
    for layer in weights.layers:
        for module in layer.modules():
            if isinstance(module, AffineMap):
                module.weight_is_drawn()


def linear_maps(layer: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """Yield every linear map of a layer once, with its name: q, k, v and out of each attention, fc1, fc2."""
    for name, module in layer.named_modules():
        if isinstance(module, nn.Linear):
            yield name, module


def attentions(layers: Iterable[nn.Module]) -> list[Attention]:
    """Return every softmax attention of ``layers``."""
    return [module for layer in layers for module in layer.modules() if isinstance(module, Attention)]


def scale_rates(parameters: Iterable[nn.Parameter], **factors: float) -> None:
    """Set multipliers of ``lr`` or ``eps`` of parameters; training/param_groups.py applies them."""
    named = {name: factor for name, factor in factors.items() if factor != 1}
    for parameter in parameters:
        if named:
            parameter.optim_overrides = {MULTIPLIERS: named}  # type: ignore[attr-defined]


def multipliers_of(parameter: nn.Parameter) -> dict[str, float]:
    """Return the factors that :func:`scale_rates` gave to a parameter; a copy of the parameter has none."""
    return getattr(parameter, "optim_overrides", {}).get(MULTIPLIERS, {})


def draw_cross_attention_apart(weights: StackWeights) -> None:
    """Give q, k and v of every cross-attention the bound of three separate matrices, gain 1. Idempotent.

    DS-Init's authors draw them so, but those of self-attention as one matrix: func.dot_attention of
    github.com/bzhangGo/zero.
    """
    for module in attentions(weights.layers):
        if module.encoder_decoder_attention and module.qkv_same_dim:
            for projection in (module.q_proj, module.k_proj, module.v_proj):
                projection.weight.div_(module.xavier_input_gain)
            module.xavier_input_gain = 1.0


part(Axis.INIT, "keep", summary="the base initialisation, unchanged")(lambda weights, design: None)
part(Axis.BASE_INIT, "fairseq", summary="what fairseq draws today")(lambda weights, design: None)


@part(Axis.BASE_INIT, "xavier", summary="Xavier uniform, zero biases: what the papers assume")
def xavier(weights: StackWeights, design: StackDesign) -> None:
    """Xavier uniform for every matrix, zero for every bias: fairseq before 2019-10-25.

    Glorot and Bengio 2010: U(-b, b) with b = gain * sqrt(6 / (fan_in + fan_out)). The gain is 1, but for the q, k
    and v maps :attr:`Attention.xavier_input_gain` where all three are square, as in fairseq.
    """
    gains = {
        id(projection): module.xavier_input_gain
        for module in attentions(weights.layers)
        if module.qkv_same_dim
        for projection in (module.q_proj, module.k_proj, module.v_proj)
    }
    for layer in weights.layers:
        for _, linear in linear_maps(layer):
            nn.init.xavier_uniform_(linear.weight, gain=gains.get(id(linear), 1.0))
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)


@part(
    Axis.BASE_INIT,
    "xavier_biased",
    summary="Xavier uniform, random biases of q, k and v: fairseq between 2019-10 and 2020-03",
)
def xavier_biased(weights: StackWeights, design: StackDesign) -> None:
    """Xavier uniform for every matrix; fairseq from 2019-10-25 to 2020-03-19.

    As :func:`xavier`, but the biases of the attentions' q, k and v maps are drawn from U(-1/sqrt(d_in), 1/sqrt(d_in)),
    which is what ``nn.Linear`` does and what fairseq did not override.
    """
    xavier(weights, design)
    for module in attentions(weights.layers):
        for projection in (module.q_proj, module.k_proj, module.v_proj):
            if isinstance(projection.bias, nn.Parameter):
                bound = 1 / math.sqrt(projection.in_features)
                nn.init.uniform_(projection.bias, -bound, bound)


@part(
    Axis.BASE_INIT,
    "xavier_apart",
    summary="xavier, but q, k and v of the cross-attention are three matrices of gain 1: DS-Init's Post-LN",
    conflicts=lambda design, config: (
        ["--base-init xavier_apart applies to the cross-attention, and this model has none: use --base-init xavier"]
        if config.no_cross_attention
        else []
    ),
)
def xavier_apart(weights: StackWeights, design: StackDesign) -> None:
    """Draw as :func:`xavier` does, with :func:`draw_cross_attention_apart`."""
    xavier(weights, design)
    draw_cross_attention_apart(weights)
