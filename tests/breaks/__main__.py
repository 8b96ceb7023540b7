"""Break each part of the package once and see whether a test notices: ``python -m tests.breaks``.

Exit code 0 where each break was caught, 1 where one was not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.breaks.checking import check, copy_of_tracked_files, failing_without_a_break, table
from tests.breaks.listed import BREAKS, Break

ROOT = Path(__file__).resolve().parents[2]


def parser() -> argparse.ArgumentParser:
    """Flags of this module."""
    flags = argparse.ArgumentParser(prog="python -m tests.breaks", description=__doc__)
    flags.add_argument("--only", nargs="+", metavar="NAME", help="these breaks (default: all)")
    flags.add_argument(
        "--select", default="not slow", metavar="MARKS", help="as pytest's -m, or all (default: 'not slow')"
    )
    flags.add_argument(
        "--tests", nargs="+", default=[], metavar="PATH", help="run these tests only; default: those of the break first"
    )
    flags.add_argument("--no-rest", action="store_true", help="run no tests but those that the break names")
    return flags


def chosen(names: Sequence[str] | None) -> list[Break]:
    """The breaks of these names.

    Raises:
        ValueError: there is none of a name.
    """
    known = {one.name: one for one in BREAKS}
    if unknown := [name for name in names or () if name not in known]:
        raise ValueError(f"unknown break '{unknown[0]}'; legal values: {', '.join(known)}")
    return [known[name] for name in names] if names else list(BREAKS)


def main(argv: Sequence[str] | None = None) -> int:
    """Check the breaks; 1 if one survived."""
    flags = parser()
    args = flags.parse_args(argv)
    try:
        breaks = chosen(args.only)
    except ValueError as error:
        flags.error(str(error))
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="breaks-") as directory:
        copy = Path(directory)
        copy_of_tracked_files(ROOT, copy)
        for number, broken in enumerate(breaks, start=1):
            outcome = check(broken, copy, args.select, args.tests, rest=not args.no_rest)
            outcomes.append(outcome)
            said = outcome.caught_by or outcome.unclear or "no test"
            print(f"{number}/{len(breaks)} {broken.name}: {said} ({outcome.seconds:.0f} s)", flush=True)
        always = failing_without_a_break([one.caught_by for one in outcomes if one.caught_by], copy)
    print(f"\n{table(outcomes, always)}")
    caught = sum(bool(one.caught_by) and one.caught_by not in always for one in outcomes)
    print(f"\n{caught} of {len(outcomes)} breaks caught")
    return 0 if caught == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
