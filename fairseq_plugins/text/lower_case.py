"""Lower-case text like Moses' lowercase.perl."""

from __future__ import annotations


def lower_case(line: str) -> str:
    """Lower-case a line. A sigma at the end of a word becomes σ as in Perl; Python would write ς."""
    return line.replace("Σ", "σ").lower()
