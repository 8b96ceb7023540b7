"""The design of one stack: its sizes, its ten parts and their options; layers and stacks build from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor

from fairseq_plugins.core.method import Axis, Part, Stack


class Constant:
    """A number of a formula, which may depend on the depth; call it for a factor of a tensor.

    Compiled code gets a tensor ``()``, since a number would be part of the code, and each layer would need its own.
    """

    def __init__(self, number: float) -> None:
        self.number, self._tensor = number, torch.tensor(number, dtype=torch.float64, device="cpu")

    def __call__(self) -> float | Tensor:
        """Return the value of the constant."""
        return self._tensor if torch.compiler.is_compiling() else self.number


@dataclass(frozen=True)
class StackDesign:
    """Everything that a stack is built from, and that its parts may read.

    Attributes:
        stack: the stack that is being built.
        parts: the chosen part of each axis.
        encoder_layers: number of encoder layers, N; 0 in a language model.
        decoder_layers: number of decoder layers, M.
        width: model width d of this stack.
        ffn_width: width f of the feed-forward sub-layers of this stack.
        heads: attention heads of this stack.
        activation_dropout: rate of the dropout after an activation.
        embedding_dropout: rate of the dropout of the embedding below the first layer.
        options: values of the options that the registered parts declare, by attribute.
        below: the encoder's design, in a decoder above one.
    """

    stack: Stack
    parts: Mapping[Axis, Part]
    encoder_layers: int
    decoder_layers: int
    width: int
    ffn_width: int
    heads: int
    activation_dropout: float
    embedding_dropout: float
    options: SimpleNamespace
    below: StackDesign | None = None

    @property
    def layers(self) -> int:
        """Number of layers of this stack."""
        return self.encoder_layers if self.stack is Stack.ENCODER else self.decoder_layers

    def choice(self, axis: Axis) -> str:
        """Name of the part on ``axis``."""
        return self.parts[axis].name
