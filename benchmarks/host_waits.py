"""How often the host waits for a GPU: in a training step, and in a step of the search, beside stock fairseq.

Torch itself reports each call that waits (``torch.cuda.set_sync_debug_mode``). Run it from the repository's root:
``python benchmarks/host_waits.py --help``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable

import torch
from common import STOCK, machine, make_task, model_size, step_flags
from decode_time import make_search
from step_time import make_step

REPORTED = "called a synchronizing CUDA operation"
WARM_UP = 2
"""Steps before the one that is counted: masks grow, and Admin measures its profile."""


def waits(run: Callable[[], None]) -> int:
    """How often ``run`` makes the host wait."""
    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum(REPORTED in str(one.message) for one in reported)


def training_step(arch: str, args: argparse.Namespace) -> int:
    """Waits of a step of forward and backward pass, and optimizer."""
    step, _ = make_step(arch, args, make_task(args.vocabulary), model_size(args))
    for _ in range(WARM_UP):
        step()
    return waits(step)


def search(run: str, args: argparse.Namespace) -> float:
    """Waits of a step of the search: of a batch, over its steps."""
    found = make_search(run, args)
    found()
    return waits(found) / args.length


def main() -> None:
    """Print the table."""
    parser = step_flags(__doc__)
    parser.add_argument("--methods", default="post_ln,admin,b2t,dsinit_matt,rezero")
    parser.add_argument("--beam", type=int, default=4)
    args = parser.parse_args()
    args.half = args.precision == "fp16"
    print(f"{machine(args.device)}; {args.precision}, {args.layers}-{args.layers} layers, width {args.width}\n")
    print("| arch | waits of a training step | of a step of fairseq's search | of the lean one |\n|---|---:|---:|---:|")
    for arch in (STOCK, *(f"{name}_transformer" for name in args.methods.split(","))):
        searches = [search(f"{arch} {name}", args) for name in ("fairseq", "lean")]
        print(f"| {arch} | {training_step(arch, args)} | {searches[0]:.1f} | {searches[1]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
