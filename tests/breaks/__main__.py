"""Break the package and see whether a test notices: ``python -m tests.breaks``.

Exit code 0 where each break was caught, 1 where one was not.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.breaks.checking import ROOT, check, copy_of_tracked_files, listed, table


def main() -> int:
    """Check the breaks; 1 if one survived."""
    breaks = listed()
    flags = argparse.ArgumentParser(prog="python -m tests.breaks", description=__doc__)
    flags.add_argument("--only", nargs="+", metavar="NAME", choices=breaks, default=breaks, help="these (default: all)")
    names = flags.parse_args().only
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="breaks-") as directory:
        copy = Path(directory)
        copy_of_tracked_files(ROOT, copy)
        for number, name in enumerate(names, start=1):
            outcome = check(breaks[name], copy)
            outcomes.append(outcome)
            said = outcome.caught_by or outcome.unclear or "no test"
            print(f"{number}/{len(names)} {name}: {said} ({outcome.seconds:.0f} s)", flush=True)
    caught = sum(bool(outcome.caught_by) for outcome in outcomes)
    print(f"\n{table(outcomes)}\n\n{caught} of {len(outcomes)} breaks caught")
    return 0 if caught == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
