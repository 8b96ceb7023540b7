"""Hit the commands of the pipeline for some minutes: ``python -m tests.faults --minutes 10``.

Exit code 0 if every command came through, 1 if one did not; the table has the seed that repeats it.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: it is copied, and threads are not


def parser() -> argparse.ArgumentParser:
    """Flags of this module."""
    flags = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    flags.add_argument("--minutes", type=float, default=10.0, metavar="N", help="for how long (default: 10)")
    flags.add_argument("--seed", type=int, metavar="S", help="of the random moments (default: a new one, printed)")
    flags.add_argument("--hits", type=int, default=3, metavar="N", help="of one fault in a row (default: 3)")
    flags.add_argument("--only", nargs="+", metavar="NAME", help="these subjects and faults; --list has their names")
    flags.add_argument("--list", action="store_true", help="only print the names")
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Hit until the time is over; 1 if something did not hold."""
    flags = parser()
    args = flags.parse_args(argv)
    from tests.faults.campaign import Workshop, pairs
    from tests.faults.hits import FAULTS, read_only_can_be_made
    from tests.faults.report import table
    from tests.faults.subjects import SUBJECTS

    if args.list:
        print(f"subjects: {', '.join(SUBJECTS)}\nfaults: {', '.join(FAULTS)}")
        return 0
    if unknown := set(args.only or ()) - SUBJECTS.keys() - FAULTS.keys():
        flags.error(f"unknown name '{min(unknown)}'; legal values: {', '.join([*SUBJECTS, *FAULTS])}")
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="faults-") as directory:
        workshop, until = Workshop(Path(directory)), time.monotonic() + 60 * args.minutes
        can = read_only_can_be_made(Path(directory))
        if not can:
            print("no read-only disk: chattr or chmod has no effect here")
        chosen = pairs(args.only, can)
        random.Random(seed).shuffle(chosen)
        rounds = 0
        while time.monotonic() < until:
            subject, fault = chosen[rounds % len(chosen)]
            outcome = workshop.campaign(subject, fault, args.hits, seed + rounds // len(chosen), until)
            rounds += 1
            outcomes.append(outcome)
            said = "; ".join(outcome.failures) or "came through"
            print(f"{subject.name}, {fault}: {outcome.hits} hits, {said}", flush=True)
    print(f"\n{table(outcomes)}")
    return 1 if any(outcome.failures for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
