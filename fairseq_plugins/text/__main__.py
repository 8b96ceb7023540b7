"""``python -m fairseq_plugins.text STEP ...``: one step of the preparation of text.

A new step is one line in :data:`STEPS`: its module, which has ``main(argv) -> int``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.process import exit_code


@dataclass(frozen=True)
class Step:
    """One word after ``python -m fairseq_plugins.text``; its module is imported only for this step."""

    summary: str
    module: str
    function: str = "main"


_HERE = "fairseq_plugins.text"

STEPS: Mapping[str, Step] = {
    "check": Step("check that files are UTF-8, not empty, and have equally many lines", f"{_HERE}.check"),
    "check-archive": Step("check that a downloaded archive is complete", f"{_HERE}.archives", "main_of_check"),
    "unpack": Step("unpack an archive into a directory", f"{_HERE}.archives", "main_of_unpack"),
    "sgm": Step("extract the sentences of a WMT test set", f"{_HERE}.sgm"),
    "ted": Step("extract the sentences of a TED release", f"{_HERE}.ted"),
    "normalise": Step("normalise punctuation; drop control characters", f"{_HERE}.normalise"),
    "straighten": Step("replace ’ by '", f"{_HERE}.normalise", "main_of_straighten"),
    "tokenise": Step("split words from punctuation", f"{_HERE}.tokenise"),
    "detokenise": Step("join words and punctuation again", f"{_HERE}.tokenise", "main_of_detokenise"),
    "learn-truecaser": Step("learn which words begin with a capital", f"{_HERE}.truecase", "main_of_learn"),
    "truecase": Step("write the first word of a sentence as inside sentences", f"{_HERE}.truecase"),
    "lower-case": Step("lower-case a text", f"{_HERE}.lower_case"),
    "clean": Step("drop pairs that are empty, too long or too unequal", f"{_HERE}.clean"),
    "split": Step("move every n-th pair of the training text to the validation set", f"{_HERE}.split"),
    "describe": Step("describe a text in text.json: tokens, subwords, case", f"{_HERE}.description"),
    "marks": Step("refuse text that contains subword marks", f"{_HERE}.description", "main_of_marks"),
    "select": Step("select lines of a file", f"{_HERE}.select"),
    "columns": Step("split tab-separated text into columns", f"{_HERE}.columns"),
    "copy": Step("copy a file byte for byte; unpack gzip", f"{_HERE}.copy"),
    "learn-bpe": Step("learn byte-pair merges, joint for all files", f"{_HERE}.bpe", "main_of_learn"),
    "apply-bpe": Step("split words by learned merges", f"{_HERE}.bpe", "main_of_apply"),
    "learn-sentencepiece": Step("learn a SentencePiece model", f"{_HERE}.pieces", "main_of_learn"),
    "apply-sentencepiece": Step("split lines by a SentencePiece model", f"{_HERE}.pieces", "main_of_apply"),
    "join-subwords": Step("join subwords into words", f"{_HERE}.join"),
    "cut-bytes": Step("cut a file into parts of 90, 5 and 5 percent of its bytes", f"{_HERE}.bytes", "main_of_cut"),
    "bytes": Step("write each byte as a token", f"{_HERE}.bytes"),
    "count": Step("count lines, tokens and types of files", f"{_HERE}.count"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one step with ``argv`` (default: the command line) and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return exit_code(lambda: run_step(arguments))


def run_step(argv: Sequence[str]) -> int:
    """Run one step inside this process and return its exit code.

    Raises:
        UserError: the step is unknown or failed.
    """
    if not argv:
        raise UserError(f"no step given; one of: {', '.join(STEPS)}")
    name, *rest = argv
    if name in ("-h", "--help"):
        print(usage())
        return 0
    if name not in STEPS:
        raise UserError(unknown_name("step", name, STEPS))
    step = STEPS[name]
    code: int = getattr(import_module(step.module), step.function)(rest)
    return code


def usage() -> str:
    """The text of ``--help``."""
    width = max(map(len, STEPS)) + 2
    lines = [f"  {name:<{width}}{step.summary}" for name, step in STEPS.items()]
    return "\n".join(["usage: python -m fairseq_plugins.text STEP [OPTION ...]", "", *lines])


if __name__ == "__main__":
    sys.exit(main())
