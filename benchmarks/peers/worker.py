"""A process that holds one toolkit's model and does one piece of work whenever it reads a line; see run.py."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))
from kinds import kinds_of
from toolkits import TOOLKITS, Size


def main() -> None:
    """Read the settings from the command line, then answer each line with the seconds of one piece of work."""
    name, settings = sys.argv[1], json.loads(sys.argv[2])
    torch.set_num_threads(settings.pop("threads"))
    torch.manual_seed(1)
    wanted, fused = settings.pop("work"), settings.pop("fused")
    # Toolkits print lines that are no answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    step, search = TOOLKITS[name](Size(**settings), fused)
    work = search if wanted == "search" else step
    if work is None:
        raise SystemExit(f"{name} has no beam search here")
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        if wanted == "profile":
            print(json.dumps(kinds_of(work)), file=answers, flush=True)
            continue
        wall, processor = time.perf_counter(), time.process_time()
        work()
        seconds = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
        print(json.dumps(seconds), file=answers, flush=True)


if __name__ == "__main__":
    main()
