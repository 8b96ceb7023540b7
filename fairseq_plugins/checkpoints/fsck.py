"""``fairseq-deep fsck DIR ...``: is each checkpoint sound, and from which one can a training continue?

It reads every file as all commands do, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_plugins.checkpoints.damaged import LAST
from fairseq_plugins.checkpoints.files import num_updates, read_checkpoint
from fairseq_plugins.errors import UserError
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.process import exit_code
from fairseq_plugins.tables import number, tabulated

DAMAGED = 1
"""Exit code if a checkpoint is not sound."""


class Checked(NamedTuple):
    """A checkpoint, its updates if it tells them, whether a training can continue from it, and what is wrong."""

    path: Path
    updates: int | None = None
    resumable: bool = False
    problem: str = ""


def look_at(path: Path) -> Checked:
    """Read one checkpoint."""
    try:
        state = read_checkpoint(path)
    except UserError as error:
        return Checked(path, problem=str(error).replace(f"checkpoint {path} is ", "").replace(f"{path}: ", ""))
    iterator = (state.get("extra_state") or {}).get("train_iterator")
    return Checked(path, num_updates(state), bool(iterator and state.get("last_optimizer_state")))


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
    files = {place: sorted(place.glob("*.pt")) if place.is_dir() else [place] for place in places}
    for place, paths in files.items():
        if not paths or not place.exists():
            raise UserError(f"{place}: {'contains no checkpoint' if place.exists() else 'no such file or directory'}")
    sound = True
    for place, paths in files.items():
        checked = [look_at(path) for path in paths]
        sound &= not any(checkpoint.problem for checkpoint in checked)
        rows = [[entry.path.name, number(entry.updates, ",d"), entry.problem or "sound"] for entry in checked]
        print(f"{place}:\n{tabulated([['checkpoint', 'updates', 'state'], *rows], left=(0, 2))}")
        if place.is_dir():
            resumable = [checkpoint for checkpoint in checked if checkpoint.resumable]
            last = max(resumable, key=lambda item: (item.updates or 0, item.path.name == LAST), default=None)
            where = f"can continue from {last.path.name} ({number(last.updates, ',d')} updates)" if last else ""
            print(f"a training {where or 'cannot continue from any of them'}")
    return 0 if sound else DAMAGED
