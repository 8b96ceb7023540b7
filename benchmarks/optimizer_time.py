"""Step of ``foreach_adam``, ``fused_adam`` and ``muon`` against fairseq's Adam on a deep model, in one process in turn.

Gradients are drawn once; a step is that of the optimizer alone. Run it from the repository's root: ``python
benchmarks/optimizer_time.py --help``.
"""

import argparse
from collections.abc import Callable

import torch
from common import OPTIMIZERS, STOCK, Size, interleaved, machine, make_model, make_optimizer, make_task, table


def make_step(name: str, args: argparse.Namespace) -> tuple[Callable[[], None], int]:
    """A closure that makes one step of the optimizer, and the number of tensors that it moves."""
    size = Size(args.layers, args.layers, args.width, max(1, args.width // 64), args.vocabulary)
    model = make_model(STOCK, size, make_task(args.vocabulary)).to(args.device)
    draw = torch.Generator(device=args.device).manual_seed(1)
    for parameter in model.parameters():
        parameter.grad = 1e-3 * torch.randn(parameter.shape, generator=draw, device=args.device)
    # The closure keeps the model alive by its optimizer.
    optimizer = make_optimizer(name, model)
    return lambda: optimizer.step(None), len(list(model.parameters()))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=60, help="on each side")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    made = {name: make_step(name, args) for name in OPTIMIZERS}
    print(f"{machine(args.device)}; {args.layers}-{args.layers} layers, width {args.width}, ", end="")
    print(f"{made['adam'][1]} tensors; {args.rounds} rounds\n")
    seconds = interleaved({name: step for name, (step, _) in made.items()}, args.rounds, args.device)
    print(table(seconds, "adam").replace("| arch", "| optimizer", 1))


if __name__ == "__main__":
    main()
