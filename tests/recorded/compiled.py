"""Pieces of code that ``--compile-layers`` makes for each method, and how far its numbers are from eager ones.

``python -m tests.recorded.compiled [METHOD ...]`` writes the rows of these methods, by default of all; a method takes
five seconds. It is no part of ``make record``.
"""

import logging
import sys
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch._dynamo.eval_frame import _debug_get_cache_entry_list

from fairseq_plugins.core.method import METHODS
from fairseq_plugins.training import compiled_layers
from fairseq_plugins.training.compiled_layers import CompiledLayers
from tests import models

FILE = Path(__file__).parent / "compiled.tsv"
DEPTHS = (6, 18)
"""Layers on each side."""
HEADER = "method\tpieces at 6-6\tat 18-18"


class Seen(NamedTuple):
    """Pieces of code so far, the classes that stay eager, and loss and gradients of a batch."""

    pieces: int
    eager: set[type]
    numbers: list[Tensor]


def build(method: str, layers: int) -> nn.Module:
    """A model in training, with dropout everywhere, that has seen its first batch."""
    rates = [word for name in ("", "attention-", "activation-") for word in (f"--{name}dropout", "0.1")]
    sizes = ["--encoder-layers", str(layers), "--decoder-layers", str(layers)]
    model = models.build(*models.CASES[method], *sizes, *rates).train()
    update(model)
    return model


def update(model: nn.Module) -> list[Tensor]:
    model.zero_grad()
    torch.manual_seed(5)
    loss = models.loss_of(model, models.batch())
    loss.backward()  # type: ignore[no-untyped-call]
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def compiled(model: nn.Module, backend: Any = "eager") -> Seen:
    """Compute an update with compiled layers; numbers of Python are part of the code, as they are of most kernels."""
    with mock.patch.object(compiled_layers, "BACKEND", backend), torch._dynamo.config.patch(specialize_float=True):
        layers = CompiledLayers(model)
        numbers = update(model)
    return Seen(len(_debug_get_cache_entry_list(compiled_layers.run)), layers.eager, numbers)


def row(method: str) -> str:
    pieces = []
    for layers in DEPTHS:
        torch._dynamo.reset()
        pieces.append(str(compiled(build(method, layers)).pieces))
    return "\t".join([method, *pieces])


def recorded() -> dict[str, str]:
    lines = FILE.read_text(encoding="utf-8").splitlines()[1:] if FILE.exists() else []
    return {line.partition("\t")[0]: line for line in lines}


def main(chosen: list[str]) -> int:
    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    for method in chosen or METHODS:
        rows = {**recorded(), method: row(method)}
        print(rows[method], flush=True)
        FILE.write_text("\n".join([HEADER, *(rows[m] for m in METHODS if m in rows), ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
