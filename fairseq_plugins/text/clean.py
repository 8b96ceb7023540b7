"""Drop pairs that are empty, too long, too short or too unequal: the rules of Moses' clean-corpus-n.

One rule is omitted: "|", which separates factors in Moses, stays in the text.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.errors import UserError
from fairseq_plugins.lines import in_step, whole_files
from fairseq_plugins.options import at_least
from fairseq_plugins.text.command import parser_of


@dataclass(frozen=True)
class Limits:
    """Limits of a pair.

    Args:
        minimum, maximum: tokens of either side.
        ratio: maximum length of one side over that of the other.
        longest_token: maximum characters of a token.
    """

    minimum: int = 1
    maximum: int = 250
    ratio: float = 9.0
    longest_token: int = 1000

    def fault(self, source: Sequence[str], target: Sequence[str]) -> str | None:
        """Why a pair of token lists is dropped; None if it stays."""
        lengths = (len(source), len(target))
        if 0 in lengths:
            return "with an empty side"
        if max(lengths) > self.maximum:
            return f"with more than {self.maximum} tokens"
        if min(lengths) < self.minimum:
            return f"with fewer than {self.minimum} tokens"
        if max(lengths) / min(lengths) > self.ratio:
            return f"with one side more than {self.ratio:g} times as long as the other"
        if any(len(token) > self.longest_token for side in (source, target) for token in side):
            return f"with a token of more than {self.longest_token} characters"
        return None


def clean(inputs: Sequence[Path], outputs: Sequence[Path], kept: Path, limits: Limits) -> tuple[int, Counter[str]]:
    """Write the pairs that stay, with single spaces, and their line numbers (from 1) to ``kept``.

    Returns the number of pairs that stay, and the number of dropped pairs by reason.

    Raises:
        UserError: the files are not parallel or not UTF-8, or no pair stays.
    """
    faults: Counter[str] = Counter()
    count = 0
    with whole_files(*outputs, kept) as [*writers, numbers]:
        for number, lines in enumerate(in_step(inputs), start=1):
            sides = [line.split() for line in lines]
            if fault := limits.fault(sides[0], sides[1]):
                faults[fault] += 1
                continue
            count += 1
            numbers.write_line(str(number))
            for writer, side in zip(writers, sides, strict=True):
                writer.write_line(" ".join(side))
        if not count:
            raise UserError(f"{inputs[0]}: no pair is left after cleaning: {_told(faults)}")
    return count, faults


def _told(faults: Counter[str]) -> str:
    return ", ".join(f"{count:,} {fault}" for fault, count in faults.most_common())


def _ratio(value: str) -> float:
    number = float(value)
    if not number >= 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return number


def main(argv: Sequence[str]) -> int:
    """``clean SOURCE TARGET SOURCE_OUT TARGET_OUT KEPT``: print how many pairs were dropped and why."""
    flags = parser_of("clean", __doc__)
    flags.add_argument("--min", type=at_least(1), default=1, metavar="N", help="default: 1")
    flags.add_argument("--max", type=at_least(1), default=250, metavar="N", help="default: 250")
    flags.add_argument("--ratio", type=_ratio, default=9.0, metavar="R", help="default: 9, as in Moses")
    for name in ("source", "target", "source_out", "target_out"):
        flags.add_argument(name, type=Path, metavar=name.upper())
    flags.add_argument("kept", type=Path, metavar="KEPT", help="output file for the line numbers of the kept pairs")
    args = flags.read(argv)
    limits = Limits(args.min, args.max, args.ratio)
    count, faults = clean([args.source, args.target], [args.source_out, args.target_out], args.kept, limits)
    print(f"kept {count:,} of {count + faults.total():,} pairs" + (f"; dropped: {_told(faults)}" if faults else ""))
    return 0
