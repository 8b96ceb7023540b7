"""``fairseq-deep fsck DIR ...``: is each checkpoint sound, and from which one can a training continue?

It reads every file as all commands do, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.checkpoints.files import num_updates, read_checkpoint
from fairseq_plugins.errors import UserError
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.process import exit_code
from fairseq_plugins.tables import ABSENT, tabulated

DAMAGED = 1
"""Exit code if a checkpoint is not sound."""


@dataclass(frozen=True)
class Found:
    """One checkpoint.

    Args:
        path: its file.
        updates: of its training; None if it is damaged or does not say.
        resumable: whether it holds what a training needs to continue.
        problem: what is wrong; None if it is sound.
    """

    path: Path
    updates: int | None = None
    resumable: bool = False
    problem: str | None = None


def look_at(path: Path) -> Found:
    """Read one checkpoint."""
    try:
        state = read_checkpoint(path)
    except UserError as error:
        return Found(path, problem=str(error).replace(f"checkpoint {path} is ", "").replace(f"{path}: ", ""))
    iterator = (state.get("extra_state") or {}).get("train_iterator")
    return Found(path, num_updates(state), bool(iterator and state.get("last_optimizer_state")))


def main(argv: Sequence[str] | None = None) -> int:
    """Check; 0, 1 if a checkpoint is not sound, or 2 after one line for each mistake."""
    parser = OneLineParser(
        prog="fairseq-deep fsck",
        description="Check checkpoints: whole, no byte changed, plain data, finite weights, and the SHA-256 of "
        "averages and folded models. Say which one of a directory a training can continue from. Exit code 1 "
        "if one is not sound. Nothing is changed.",
    )
    parser.add_argument("places", nargs="+", type=Path, metavar="DIR", help="directories of checkpoints, or files")
    return exit_code(lambda: check(parser.read(argv).places))


def check(places: Sequence[Path]) -> int:
    """Print a table for each place; the exit code.

    Raises:
        UserError: a place is absent or has no checkpoint.
    """
    found = {place: [look_at(path) for path in _files(place)] for place in places}
    for place, each in found.items():
        print(f"{place}:\n{_table(each)}")
        if place.is_dir():
            print(_resumed_from(each))
    return DAMAGED if any(one.problem for each in found.values() for one in each) else 0


def _files(place: Path) -> list[Path]:
    files = sorted(place.glob("*.pt")) if place.is_dir() else [place]
    if not files:
        raise UserError(f"{place}: contains no checkpoint")
    if not place.exists():
        raise UserError(f"{place}: no such file or directory")
    return files


def _table(found: Sequence[Found]) -> str:
    rows = [[one.path.name, _updates(one), one.problem or "sound"] for one in found]
    return tabulated([["checkpoint", "updates", "state"], *rows], left=(0, 2))


def _updates(one: Found) -> str:
    return ABSENT if one.updates is None else f"{one.updates:,}"


def _resumed_from(found: Sequence[Found]) -> str:
    usable = [one for one in found if one.resumable]
    if not usable:
        return "a training cannot continue from any of them"
    last = max(usable, key=lambda one: (one.updates or 0, one.path.name == "checkpoint_last.pt"))
    return f"a training can continue from {last.path.name} ({_updates(last)} updates)"
