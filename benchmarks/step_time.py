"""Training step of every method against stock fairseq, interleaved in one process.

A step is forward, label-smoothed cross-entropy, backward and one update of fairseq's Adam. Run it from the
repository's root: ``python benchmarks/step_time.py --help``.
"""

from __future__ import annotations

import argparse
from typing import Callable, Tuple

import torch
from common import (
    METHODS,
    PRECISIONS,
    STOCK,
    Size,
    interleaved,
    machine,
    make_model,
    make_task,
    step_flags,
    table,
    zipf_tokens,
)
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.optim.adam import Adam


def make_step(
    arch: str, args: argparse.Namespace, task, size: Size
) -> Tuple[Callable[[], None], torch.nn.Module]:
    """A closure that makes one training step, and the model that it trains."""
    model = make_model(arch, size, task, ["--dropout", "0.1"])
    model = model.to(device=args.device, dtype=PRECISIONS[args.precision]).train()
    criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=0.1)
    optimizer = Adam(model.parameters(), lr=1e-5, betas=(0.9, 0.98))
    source = zipf_tokens(args.sentences, args.length, size.vocabulary, seed=1).to(args.device)
    target = zipf_tokens(args.sentences, args.length, size.vocabulary, seed=2).to(args.device)
    sample = {
        "net_input": {
            "src_tokens": source,
            "src_lengths": torch.full((args.sentences,), args.length, device=args.device),
            "prev_output_tokens": torch.cat([target[:, -1:], target[:, :-1]], dim=1),
        },
        "target": target,
        "ntokens": target.numel(),
    }

    def step() -> None:
        loss, _, _ = criterion(model, sample)
        (loss / sample["ntokens"]).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, model


def model_size(args: argparse.Namespace) -> Size:
    """The size that the flags describe; heads are 64 wide."""
    return Size(args.layers, args.layers, args.width, max(1, args.width // 64), args.vocabulary)


def main() -> None:
    """Print the table."""
    parser = step_flags(__doc__)
    parser.add_argument("--methods", default=",".join(METHODS))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    task, size = make_task(args.vocabulary), model_size(args)
    archs = [STOCK] + [f"{name}_transformer" for name in args.methods.split(",")]
    runs = {arch: make_step(arch, args, task, size)[0] for arch in archs}
    seconds = interleaved(runs, args.rounds, args.device)
    print(f"{machine(args.device)}; {args.precision}; {args.layers}-{args.layers} layers, width {args.width}, ", end="")
    print(f"{args.sentences} x {args.length} tokens, vocabulary {args.vocabulary}; {args.rounds} rounds\n")
    print(table(seconds))


if __name__ == "__main__":
    main()
