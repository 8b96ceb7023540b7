"""Training step of every method against stock fairseq, interleaved in one process, and the memory it keeps.

A step is forward, label-smoothed cross-entropy, backward and one update of fairseq's Adam; the methods can have another
optimizer. Only a few models fit into memory together, so methods are timed in groups, each with a stock model of its
own. Run it from the repository's root: ``python benchmarks/step_time.py --help``.
"""

import argparse
import contextlib
from collections.abc import Callable

import torch
from common import (
    METHODS,
    PRECISIONS,
    STOCK,
    Size,
    interleaved,
    machine,
    make_batch,
    make_model,
    make_optimizer,
    make_task,
    model_size,
    step_flags,
    table,
)
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion

from fairseq_plugins.training.mixed_precision import half_products


def make_step(arch: str, args: argparse.Namespace, task, size: Size) -> tuple[Callable[[], None], torch.nn.Module]:
    """A closure that makes one training step, and the model that it trains."""
    model = make_model(arch, size, task, ["--dropout", "0.1", *(args.model_options if arch != STOCK else [])])
    precision = args.stock_precision or args.precision if arch == STOCK else args.precision
    model = model.to(device=args.device, dtype=PRECISIONS[precision]).train()
    amp = args.amp and arch != STOCK
    criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=0.1)
    optimizer = make_optimizer("adam" if arch == STOCK else args.optimizer, model)
    sample = make_batch(args.sentences, args.length, size.vocabulary, args.device)

    def step() -> None:
        with half_products(args.device) if amp else contextlib.nullcontext():
            loss, _, _ = criterion(model, sample)
        (loss / sample["ntokens"]).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, model


def kept_for_backward(step: Callable[[], None], model: torch.nn.Module) -> float:
    """MiB of all tensors that autograd keeps between forward and backward, each storage once, without parameters."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}
    alive: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        alive.append(tensor)  # so that no address is counted for two
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        step()
    return sum(kept.values()) / 2**20


def main() -> None:
    """Print the table."""
    parser = step_flags(__doc__)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--together", type=int, default=6, help="models in memory at a time, beside stock's")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    task, size = make_task(args.vocabulary), model_size(args)
    archs = [f"{name}_transformer" for name in args.methods.split(",")]
    stock = f", stock {args.stock_precision}" if args.stock_precision else ""
    precision = f"{args.precision}{stock}{', methods under autocast' * args.amp}"
    precision += f", methods with {args.optimizer}" * (args.optimizer != "adam")
    layers = f"{size.encoder_layers}-{size.decoder_layers} layers"
    print(f"{machine(args.device)}; {precision}; {layers}, width {args.width}, ", end="")
    print(f"{args.sentences} x {args.length} tokens, vocabulary {args.vocabulary}; {args.rounds} rounds\n")
    memory: dict[str, float] = {}
    for start in range(0, len(archs), args.together):
        pairs = {arch: make_step(arch, args, task, size) for arch in [STOCK, *archs[start : start + args.together]]}
        seconds = interleaved({arch: step for arch, (step, _) in pairs.items()}, args.rounds, args.device)
        print("\n".join(table(seconds).splitlines()[0 if start == 0 else 3 :]), flush=True)
        memory.update({arch: kept_for_backward(*pair) for arch, pair in pairs.items()})
        del pairs
    print("\n| arch | kept for the backward pass, MiB | to stock |\n|---|---:|---:|")
    for arch, size_of in memory.items():
        print(f"| {arch} | {size_of:.0f} | {size_of / memory[STOCK]:.2f} |")


if __name__ == "__main__":
    main()
