"""The error class for mistakes of the user, and how it reaches a terminal.

A mistake in a flag, a YAML file, a corpus or a checkpoint ends in one clear line and exit code 2, whichever command
found it; a training that the divergence guard has ended, in one line and exit code 3. Everything else is our bug and
keeps its stack trace.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

EXIT_CODE = 2
DIVERGED_EXIT_CODE = 3


class UserError(ValueError):
    """One or more problems that the user can fix; ``str()`` is the text on the terminal.

    Args:
        problems: one message, or several found together. Each says what is wrong, the legal values and, for a
            misspelt name, the nearest legal one.
    """

    exit_code = EXIT_CODE

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("; ".join(self.problems))


def cause_of(error: OSError) -> str:
    """Return the text of an error of the system, for the end of a message after a colon."""
    return (error.strerror or str(error)).lower()


EXPLANATIONS: list[Callable[[BaseException], UserError | None]] = []
"""Functions that know the one line for errors of other packages, and return None for all others."""


class Diverged(UserError):
    """A training that ended because it diverged or failed to train: a result, but reported in one line as well."""

    exit_code = DIVERGED_EXIT_CODE


def raised_in_worker(trace: str) -> UserError | None:
    """Recover our error from the end of a worker's trace; torch passes only that text."""
    for kind in (UserError, Diverged):
        name = re.escape(f"{kind.__module__}.{kind.__qualname__}")
        match = re.search(rf"^{name}: (.+)\Z", trace.strip(), flags=re.MULTILINE)
        if match:
            return kind(match[1])
    return None


def flag(name: str) -> str:
    """Return the command-line flag of a setting: ``--name-with-dashes``."""
    return "--" + name.replace("_", "-")


def unknown_name(kind: str, name: str, legal: Iterable[str]) -> str:
    """Return the message for a name that is not in ``legal``, with the nearest legal one if there is one."""
    names = sorted(legal)
    return f"unknown {kind} '{name}'{nearest(name, names)}; legal values: {', '.join(names)}"


def nearest(name: str, legal: Sequence[str]) -> str:
    """Return a hint for a misspelt name: the nearest legal one in brackets, or nothing."""
    near = difflib.get_close_matches(name, legal, n=1, cutoff=0.5)
    return f" (did you mean '{near[0]}'?)" if near else ""


def visible(text: str) -> str:
    """``text`` for a terminal: characters that command it, or turn the order of letters, are written as numbers."""
    return re.sub(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", lambda match: ascii(match[0])[1:-1], text)


def report(error: UserError) -> None:
    """Print ``error`` to standard error: one line for each problem."""
    for problem in error.problems:
        print(f"error: {visible(problem)}", file=sys.stderr)


def raise_everywhere(trainer: Any, problem: str | None) -> None:
    """Raise the first process's problem, if there is one, in every process of a training, so that none waits for it."""
    from fairseq.distributed import utils as distributed_utils

    if trainer.data_parallel_world_size > 1 and not trainer.tpu:
        group = trainer.data_parallel_process_group
        problem = distributed_utils.broadcast_object(problem, src_rank=0, group=group, dist_device=trainer.device)
    if problem:
        raise UserError(problem)
