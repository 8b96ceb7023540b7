"""Clean up a checkpoint directory after a kill, so that training resumes from the newest whole checkpoint.

Stock fairseq copies a checkpoint to its other names, including ``checkpoint_last.pt``, in place: a kill during the copy
leaves an incomplete file under the very name from which it resumes.
"""

import shutil
import zipfile
from contextlib import suppress
from pathlib import Path

from fairseq_plugins.checkpoints.files import num_updates, read_checkpoint
from fairseq_plugins.checkpoints.provenance import LAST
from fairseq_plugins.errors import UserError
from fairseq_plugins.files import whole_file

LEFT_OVERS = ("checkpoint*.pt.tmp", "checkpoint*.pt.partial")
"""Names under which an incomplete checkpoint is written."""


def is_damaged(path: Path) -> bool:
    """Return whether ``path`` is empty or incomplete; a whole checkpoint ends with the list of its content."""
    with open(path, "rb") as stream:
        start = stream.read(4)
    return not start or (b"PK\3\4".startswith(start) and not zipfile.is_zipfile(path))


def restore_last_checkpoint(directory: Path) -> list[str]:
    """Remove damaged checkpoints; if the last one is gone, restore it from the newest one that is whole.

    The directory may be absent. Returns a message for each change.
    """
    for pattern in LEFT_OVERS:
        for path in directory.glob(pattern):
            path.unlink()
    damaged = [path for path in sorted(directory.glob("checkpoint*.pt")) if is_damaged(path)]
    for path in damaged:
        path.unlink()
    messages = [f"{path}: truncated, removed" for path in damaged]
    last = directory / LAST
    if last.is_file():
        return messages
    updates: dict[Path, int] = {}
    for path in sorted(directory.glob("checkpoint*.pt")):
        with suppress(UserError):
            state = read_checkpoint(path)
            # A training does not go on from an average, which has no state of the optimizer.
            if state.get("last_optimizer_state"):
                updates[path] = num_updates(state) or 0
    if updates:
        newest = max(updates, key=lambda path: updates[path])
        with whole_file(last, follow=False) as partial:
            shutil.copyfile(newest, partial)
        messages.append(f"{last}: restored from {newest.name}")
    return messages
