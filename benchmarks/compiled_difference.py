"""How far ``--compile-layers`` is from eager layers: loss and gradient of one padded batch, without dropout.

``python benchmarks/compiled_difference.py [--methods post_ln,admin] [--layers 6] [--device cuda] [--backend inductor]``

The difference of the losses to the loss, and the length of the difference of the gradients to that of the gradient.
inductor needs a C++ compiler on a CPU, and Triton on a GPU.
"""

from __future__ import annotations

import argparse
import copy

import torch
from common import METHODS
from torch import Tensor, nn

from fairseq_plugins.training import compiled_layers
from tests import models


def update(model: nn.Module, batch: models.Batch) -> tuple[Tensor, Tensor]:
    """Loss, and all gradients in one vector, in float64."""
    model.zero_grad()
    loss = models.loss_of(model, batch)
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return loss.detach().double(), torch.cat(gradients).double()


def main() -> None:
    """Print a row for each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", type=lambda text: text.split(","), default=list(METHODS), help="default: all")
    parser.add_argument("--layers", type=int, default=6, help="on each side")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    args = parser.parse_args()
    compiled_layers.BACKEND = args.backend
    batch = models.Batch(*(part.to(args.device) for part in models.batch(8, 20)))
    print("| method | loss | gradient |\n| --- | ---: | ---: |")
    for method in args.methods:
        torch._dynamo.reset()
        sizes = ("--encoder-layers", str(args.layers), "--decoder-layers", str(args.layers), "--dropout", "0")
        model = models.build(*models.CASES[method], *sizes).to(args.device).train()
        update(model, batch)  # Admin sees its first batch
        other = copy.deepcopy(model)
        layers = compiled_layers.CompiledLayers(other)
        (loss, gradient), (compiled, turned) = update(model, batch), update(other, batch)
        name = f"{method} (eager)" if layers.eager else method
        by_gradient = (turned - gradient).norm() / gradient.norm()
        print(f"| `{name}` | {float((compiled - loss).abs() / loss):.0e} | {float(by_gradient):.0e} |", flush=True)


if __name__ == "__main__":
    main()
