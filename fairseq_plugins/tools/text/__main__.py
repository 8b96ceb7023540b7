"""``python -m fairseq_plugins.tools.text STEP ...``: one step of the preparation of text, by itself.

Each step is a typed function; :mod:`fairseq_plugins.tools.text.command` makes its command line.
"""

import sys
from collections.abc import Mapping, Sequence
from pkgutil import resolve_name

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.process import exit_code
from fairseq_plugins.tools.text.command import call

PLACE = "fairseq_plugins.tools.text."
STEPS: Mapping[str, str] = {
    "unpack": "archives.unpack",
    "ted": "markup.extract_ted",
    "normalise": "steps.normalise",
    "straighten": "steps.straighten",
    "tokenise": "steps.tokenise",
    "detokenise": "steps.detokenise",
    "learn-truecaser": "steps.learn_truecaser",
    "truecase": "steps.truecase",
    "clean": "parallel.clean",
    "split": "parallel.split",
    "describe": "description.describe",
    "select": "parallel.select",
    "select-every": "parallel.select_every",
    "columns": "parallel.columns",
    "drop-near-copies": "parallel.drop_near_copies",
    "cut-bytes": "bytes.cut",
    "bytes": "bytes.write_tokens",
}
"""Module and function of each step; a module is imported only for its own steps."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one step with ``argv`` (default: the command line) and return its exit code."""
    return exit_code(lambda: _run(list(sys.argv[1:] if argv is None else argv)))


def _run(argv: Sequence[str]) -> int:
    name, *rest = argv or [""]
    if name in ("-h", "--help"):
        print("usage: python -m fairseq_plugins.tools.text STEP [OPTION ...]\n")
        for step in STEPS:
            summary = " ".join((resolve_name(PLACE + STEPS[step]).__doc__ or "").partition("\n\n")[0].split())
            print(f"  {step:<20}  {summary}")
        return 0
    if name not in STEPS:
        raise UserError(unknown_name("step", name, STEPS))
    if line := call(name, resolve_name(PLACE + STEPS[name]), rest):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
