"""What ``fairseq-generate`` wrote: the translations of a test set, none lost, in the order of the test set."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fairseq_plugins.errors import UserError

_HYPOTHESIS = re.compile(r"^D-(\d+)\t[^\t]*\t(.*)$")
_REFERENCE = re.compile(r"^T-(\d+)\t(.*)$")


def hypotheses_in_order(lines: Iterable[str], expected: int) -> list[str]:
    """The translations in ``fairseq-generate``'s output, in the order of the test set.

    Raises:
        UserError: a sentence is missing, comes twice, or is not of this test set.
    """
    return _in_order(_HYPOTHESIS, lines, expected)


def references_in_order(lines: Iterable[str], expected: int) -> list[str]:
    """The references in ``fairseq-generate``'s output, as the model's dictionary knows them.

    Raises:
        UserError: a sentence is missing, comes twice, or is not of this test set.
    """
    return _in_order(_REFERENCE, lines, expected)


def _in_order(pattern: re.Pattern[str], lines: Iterable[str], expected: int) -> list[str]:
    found: dict[int, str] = {}
    for line in lines:
        if not (match := pattern.match(line.rstrip("\n"))):
            continue
        index = int(match.group(1))
        if index in found:
            raise UserError(f"sentence {index} was translated twice")
        found[index] = match.group(2)
    missing = [index for index in range(expected) if index not in found]
    if missing or len(found) != expected:
        first = f"; the first missing is {missing[0]}" if missing else ""
        raise UserError(f"{len(found)} translations for {expected} test sentences{first}")
    return [found[index] for index in range(expected)]
