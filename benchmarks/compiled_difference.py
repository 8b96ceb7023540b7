"""How far ``--compile-layers`` is from eager layers in ten updates by Adam, without dropout.

``PYTHONPATH=. python benchmarks/compiled_difference.py [--methods post_ln,admin] [--layers 2] [--device cuda]``

Both models begin with the same weights and see the same padded batches. Differences are relative: of the first loss, of
the first gradient (the length of the difference to that of the gradient), and the largest of any of the ten losses.
inductor needs a C++ compiler on a CPU, and Triton on a GPU.
"""

import argparse
import copy
import logging
import sys
import time

import torch
from torch import Tensor, nn

from fairseq_plugins.training import compiled_layers
from tests import models

METHODS = ["post_ln", "admin", "hyper_connections", "rezero"]
WIDTH = 64
UPDATES = 10


def train(model: nn.Module, device: str) -> tuple[Tensor, Tensor]:
    """Losses, and the first gradient in one vector, both in float64."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses, first = [], None
    for number in range(UPDATES):
        optimizer.zero_grad()
        loss = models.loss_of(model, batch(number, device))
        loss.backward()  # type: ignore[no-untyped-call]
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).double()
        first = gradient if first is None else first
        optimizer.step()
        losses.append(loss.detach().double())
    assert first is not None
    return torch.stack(losses), first


def batch(number: int, device: str) -> models.Batch:
    """Eight sentences; the longest has 20 to 22 words."""
    return models.Batch(*(part.to(device) for part in models.batch(8, 20 + number % 3, seed=number)))


def main() -> None:
    """Print a row for each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", type=lambda text: text.split(","), default=METHODS)
    parser.add_argument("--layers", type=int, default=2, help="on each side")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    args = parser.parse_args()
    compiled_layers.BACKEND = args.backend
    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    sizes = ["--dropout", "0"]
    for stack in ("encoder", "decoder"):
        sizes += [f"--{stack}-layers", str(args.layers), f"--{stack}-embed-dim", str(WIDTH)]
        sizes += [f"--{stack}-ffn-embed-dim", str(4 * WIDTH)]
    print("method\tfirst loss\tfirst gradient\tlosses of ten updates")
    for method in args.methods:
        torch._dynamo.reset()
        began = time.perf_counter()
        model = models.build(*models.CASES[method], *sizes).to(args.device).train()
        models.loss_of(model, batch(0, args.device))  # Admin sees its first batch
        other = copy.deepcopy(model)
        layers = compiled_layers.CompiledLayers(other)
        (losses, gradient), (compiled, turned) = train(model, args.device), train(other, args.device)
        by_loss = (compiled - losses).abs() / losses
        name = f"{method} (eager)" if layers.eager else method
        found = (by_loss[0], (turned - gradient).norm() / gradient.norm(), by_loss.max())
        print("\t".join([name, *(f"{float(number):.0e}" for number in found)]), flush=True)
        print(f"{method}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
