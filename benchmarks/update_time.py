"""A whole update, ``Trainer.train_step``: every method eager and with ``--cuda-graphs``, beside stock fairseq.

All parts of fairseq's trainer are in it: sending a batch, clipping, optimizer, meters. Models are timed in turn in one
process, each method beside a stock model. Stock has fairseq's ``adam``, the methods have ``fused_adam``. "used" is the
share of the GPU's peak that the products of a Post-LN Transformer of this size take, and "reserved" what torch holds of
its memory for one training. Outside of the graph is an update without its replay: the rest launches little. Run it from
the repository's root: ``python benchmarks/update_time.py --help``.
"""

import gc
import statistics
import time
from collections.abc import Callable
from unittest import mock

import torch
from common import STOCK, Size, interleaved, machine, make_batch, make_trainer, model_size, ratios, step_flags
from common import with_quartiles as quartiles

LENGTH = 32
WARM_UP = 3
"""Updates until a graph is replayed: the first trains, the second is recorded."""
LOSS = "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --dropout 0.1 --clip-norm 1.0".split()
HEADER = "| arch | wall ratio (quartiles) | host ratio (quartiles) | median ms | used, % | reserved, MiB "
HEADER += "| host ms outside of the graph | replayed |"


def make_update(arch: str, size: Size, flags: list[str], sentences: int, device: str) -> tuple[Callable[[], None], str]:
    """A closure that makes one update of a warm training; whether updates are replayed, or why they are not."""
    trainer = make_trainer(arch, size, [*LOSS, *flags, *(["--cpu"] if device == "cpu" else [])])
    sample = make_batch(sentences, LENGTH, size.vocabulary)

    def update() -> None:
        trainer.train_step([sample])

    for _ in range(WARM_UP):
        update()
    graphs = getattr(trainer, "cuda_graphs", None)
    if graphs is None:
        return update, "no" if "--cuda-graphs" in flags else ""
    return update, graphs.stopped or ("yes" if graphs.counts["replayed"] else "no")


def products(size: Size, tokens: int) -> float:
    """Floating-point operations of all products of an update, three times those of its forward pass.

    A layer of the encoder has 12 ``width ** 2`` weights, one of the decoder 16, and an attention two products of
    ``LENGTH`` by ``width`` for each token.
    """
    weights = size.width**2 * (12 * size.encoder_layers + 16 * size.decoder_layers) + size.width * size.vocabulary
    attention = 2 * LENGTH * size.width * (size.encoder_layers + 2 * size.decoder_layers)
    return 3 * 2 * tokens * (weights + attention)


def reserved(device: str) -> float:
    """MiB that torch holds of the GPU's memory."""
    return torch.cuda.memory_reserved() / 2**20 if device == "cuda" else 0.0


def outside(update: Callable[[], None], rounds: int) -> float:
    """Median milliseconds of an update that leaves out the replay of its graph."""
    found = []
    with mock.patch.object(torch.cuda.CUDAGraph, "replay"):
        for _ in range(max(rounds, 1)):
            began = time.perf_counter()
            update()
            found.append(1e3 * (time.perf_counter() - began))
    return statistics.median(found)


def main() -> None:
    """Print the table, a method at a time, until the seconds are over."""
    parser = step_flags(__doc__)
    parser.add_argument("--methods", default="post_ln,admin,b2t,dsinit_matt,rezero,hyper_connections")
    parser.add_argument("--tokens", type=int, default=4096, help=f"of an update on each side, {LENGTH} a sentence")
    parser.add_argument("--seconds", type=float, default=600, help="no method is begun after so many")
    parser.add_argument(
        "--peak", type=float, default=989, help="10^12 operations a second of the GPU; default: an H200's"
    )
    args = parser.parse_args()
    began = time.perf_counter()
    torch.set_num_threads(args.threads)
    size, sentences = model_size(args), max(1, args.tokens // LENGTH)
    flags = [] if args.precision == "fp32" else [f"--{args.precision}"]
    layers = f"{size.encoder_layers}-{size.decoder_layers} layers"
    print(
        f"{machine(args.device)}; {args.precision}; {layers}, width {args.width}, {sentences} x {LENGTH} tokens, ",
        end="",
    )
    print(f"vocabulary {args.vocabulary}; {args.rounds} rounds; peak {args.peak:g} TFLOP/s\n")
    print(f"{HEADER}\n|---|---|---|---:|---:|---:|---:|---|", flush=True)
    for number, method in enumerate(args.methods.split(",")):
        if time.perf_counter() - began > args.seconds:
            print(f"\nThe time was over before {method}.")
            return
        fast = [*flags, "--optimizer", "fused_adam"]
        runs = {STOCK: (STOCK, flags), method: (f"{method}_transformer", fast)}
        runs[f"{method}, graphs"] = (f"{method}_transformer", [*fast, "--cuda-graphs"])
        updates, notes, memory = {}, {}, {}
        for name, (arch, given) in runs.items():
            before = reserved(args.device)
            updates[name], notes[name] = make_update(arch, size, given, sentences, args.device)
            memory[name] = reserved(args.device) - before
        seconds = interleaved(updates, args.rounds, args.device)
        wall, processor = ratios(seconds, "wall", STOCK), ratios(seconds, "processor", STOCK)
        for name in list(runs)[number > 0 :]:
            middle = statistics.median(one["wall"] for one in seconds[name])
            host = f"{outside(updates[name], args.rounds):.1f}" if notes[name] == "yes" else ""
            used = 100 * products(size, sentences * LENGTH) / middle / (args.peak * 1e12)
            print(f"| {name} | {quartiles(wall[name])} | {quartiles(processor[name])} | {1e3 * middle:.1f} ", end="")
            print(f"| {used:.1f} | {memory[name]:.0f} | {host} | {notes[name]} |", flush=True)
        updates.clear()
        gc.collect()  # a trainer and what listens to it hold each other
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
