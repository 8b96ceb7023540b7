"""Change the words of a line: lower case like Moses' lowercase.perl, and subwords joined.

Nothing of the package is needed, see :mod:`fairseq_plugins.tools.text.moses`.
"""

import re

_END_OF_A_PART = re.compile("@@( |$)")


def lower_case(line: str) -> str:
    """Lower-case a line. A sigma at the end of a word becomes σ as in Perl; Python would write ς."""
    return line.replace("Σ", "σ").lower()


def straightened(line: str) -> str:
    """Replace ’ by ', as fairseq's preparations do with test sets."""
    return line.replace("’", "'")


def joined(line: str, kind: str) -> str:
    """The words of a line of subwords; ``kind`` is ``none``, ``sentencepiece``, or ``bpe`` by either of its names."""
    if kind == "sentencepiece":
        return line.replace(" ", "").replace("▁", " ").removeprefix(" ")
    return line if kind == "none" else _END_OF_A_PART.sub("", line)
