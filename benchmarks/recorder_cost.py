"""What the recorder and the divergence guard cost: trainer steps with them at work against steps without.

The trainers take their steps in turn in one process. A recorded step's extra time divided by the interval is what a run
pays for the recorder; the guard looks at every step. Run it from the repository's root:
``python benchmarks/recorder_cost.py --help``.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
from collections.abc import Callable

import torch
from common import interleaved, machine, make_batch, make_trainer, model_size, ratios, step_flags, with_quartiles

BASE = "label_smoothed_cross_entropy"
RECORDED, GUARDED, OFF = "recorded", "guarded", "between recorded steps"
DEFAULT_INTERVAL = 100
NEVER = str(10**9)
CRITERIA = {
    BASE: [BASE],
    RECORDED: [f"{BASE}_with_diagnostics", "--diagnostics-interval", "1"],
    OFF: [f"{BASE}_with_diagnostics", "--diagnostics-interval", NEVER],
    GUARDED: [f"{BASE}_with_diagnostics", "--diagnostics-interval", NEVER, "--divergence-action", "stop"],
}


def make_step(criterion: list[str], args: argparse.Namespace, directory: str) -> Callable[[], None]:
    """A closure that makes one step of fairseq's trainer."""
    flags = ["--criterion", *criterion, "--clip-norm", "1", "--save-dir", directory]
    trainer = make_trainer(args.arch, model_size(args), flags + ["--cpu"] * (args.device == "cpu"))
    sample = make_batch(args.sentences, args.length, args.vocabulary)
    return lambda: trainer.train_step([sample])


def main() -> None:
    """Print the ratios of steps with and without, and what the recorder makes of a run."""
    logging.disable(logging.INFO)
    parser = step_flags(__doc__)
    parser.add_argument("--arch", default="admin_transformer")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as directory:
        steps: dict[str, Callable[[], None]] = {
            name: make_step(criterion, args, directory) for name, criterion in CRITERIA.items()
        }
        seconds = interleaved(steps, args.rounds, args.device)
    print(f"{machine(args.device)}; {args.arch}, {args.layers}-{args.layers} layers, width {args.width}, ", end="")
    print(f"{args.sentences} x {args.length} tokens; {args.rounds} rounds")
    for clock in ("wall", "processor"):
        found = ratios(seconds, clock, BASE)
        for name in (RECORDED, OFF, GUARDED):
            print(f"{clock}, {name}: {with_quartiles(found[name])} times a step of {BASE}")
        share = 100 * (statistics.median(found[RECORDED]) - 1) / DEFAULT_INTERVAL
        print(f"{clock}: the recorder costs {share:.3f} % of a run at the default interval of {DEFAULT_INTERVAL}")


if __name__ == "__main__":
    main()
