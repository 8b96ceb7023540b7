"""Break the package and see whether a test notices: ``python -m tests.breaks``.

Without options the breaks made by hand are checked. ``--mutants FILE`` and ``--since REVISION`` make breaks from
the source: of a file, or of the lines that were changed since a revision. Exit code 0 where each break was caught, 1
where one was not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.breaks.checking import check, copy_of_tracked_files, table
from tests.breaks.listed import BREAKS, ROOT
from tests.breaks.mutants import Break, changed_lines, mutants_of, sample


def parser() -> argparse.ArgumentParser:
    """Flags of this module."""
    flags = argparse.ArgumentParser(prog="python -m tests.breaks", description=__doc__)
    which = flags.add_mutually_exclusive_group()
    which.add_argument("--only", nargs="+", metavar="NAME", help="these of the breaks made by hand (default: all)")
    which.add_argument("--mutants", nargs="+", metavar="FILE", help="mutants of these files of the package")
    which.add_argument("--since", metavar="REVISION", help="mutants of the lines changed since this revision of git")
    flags.add_argument("--most", type=int, default=30, help="draw so many mutants at most (default: %(default)s)")
    flags.add_argument("--seed", type=int, default=1, help="of that draw (default: %(default)s)")
    return flags


def chosen(args: argparse.Namespace) -> list[Break]:
    """The breaks that the flags name.

    Raises:
        ValueError: no break has such a name.
    """
    if args.mutants or args.since:
        lines = {file: None for file in args.mutants} if args.mutants else changed_lines(ROOT, args.since)
        mutants = [mutant for file in sorted(lines) for mutant in mutants_of(ROOT, file, lines[file])]
        return sample(mutants, args.most, args.seed)
    by_hand = {broken.name: broken for broken in BREAKS}
    if unknown := [name for name in args.only or () if name not in by_hand]:
        raise ValueError(f"unknown break '{unknown[0]}'; legal values: {', '.join(by_hand)}")
    return [by_hand[name] for name in args.only or by_hand]


def main(argv: Sequence[str] | None = None) -> int:
    """Check the breaks; 1 if one survived."""
    flags = parser()
    args = flags.parse_args(argv)
    try:
        breaks = chosen(args)
    except ValueError as error:
        flags.error(str(error))
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="breaks-") as directory:
        copy = Path(directory)
        copy_of_tracked_files(ROOT, copy)
        for number, broken in enumerate(breaks, start=1):
            # Of the many mutants some change nothing, and all tests would run for each of these.
            outcome = check(broken, copy, rest=broken.where is None)
            outcomes.append(outcome)
            said = outcome.caught_by or outcome.unclear or "no test"
            print(f"{number}/{len(breaks)} {broken.name}: {said} ({outcome.seconds:.0f} s)", flush=True)
    caught = sum(bool(outcome.caught_by) for outcome in outcomes)
    print(f"\n{table(outcomes)}\n\n{caught} of {len(outcomes)} breaks caught")
    return 0 if caught == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
