"""``fairseq-deep fsck DIR ...``: is each checkpoint sound, and from which one can a training continue?

It reads every file as all commands do, and changes nothing.
"""

from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.checkpoints.provenance import LAST
from fairseq_plugins.errors import UserError
from fairseq_plugins.integrity import import_fairseq, num_updates, read_checkpoint
from fairseq_plugins.options import OneLineParser
from fairseq_plugins.process import exit_code
from fairseq_plugins.tables import ABSENT, number, tabulated

DAMAGED = 1
"""Exit code if a checkpoint is not sound."""


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
    """Print a table for each place; return the exit code. A UserError names a place without checkpoints."""
    # A directory of fairseq-deep run has the checkpoints one level down, next to their average.
    files = {
        place: sorted([*place.glob("*.pt"), *place.glob("checkpoints/*.pt")]) if place.is_dir() else [place]
        for place in places
    }
    for place, paths in files.items():
        if not paths or not place.exists():
            raise UserError(f"{place}: {'contains no checkpoint' if place.exists() else 'no such file or directory'}")
    import_fairseq()  # else every file would be blamed for errors of this import
    code = 0
    for place, paths in files.items():
        rows: list[list[str]] = []
        resumable: list[tuple[int, bool, str]] = []
        for path in paths:
            try:
                state = read_checkpoint(path)
            except UserError as error:
                problem = str(error).replace(f"checkpoint {path} is ", "").replace(f"{path}: ", "")
                rows.append([path.name, ABSENT, problem])
                code = DAMAGED
                continue
            updates = num_updates(state)
            rows.append([path.name, number(updates, ",d"), "sound"])
            if (state.get("extra_state") or {}).get("train_iterator") and state.get("last_optimizer_state"):
                resumable.append((updates or 0, path.name == LAST, path.name))
        print(f"{place}:\n{tabulated([['checkpoint', 'updates', 'state'], *rows], left=(0, 2))}")
        if place.is_dir():
            updates, _, name = max(resumable, default=(0, False, ""))
            where = f"can continue from {name} ({updates:,} updates)" if name else "cannot continue from any of them"
            print(f"a training {where}")
    return code
