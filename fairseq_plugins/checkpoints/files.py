"""Reading and writing checkpoints: what every command of this package that takes or makes one has in common.

Nothing in a file is ever executed, and a file appears under its name only when it is whole.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import whole_file

# These describe a training, not its weights: the optimiser's moments belong to other weights, and the meters would
# make two results from the same files differ by the clock.
_OF_TRAINING = ("last_optimizer_state", "fsdp_metadata")
_EXTRA_STATE_KEPT = ("train_iterator",)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a fairseq checkpoint, tensors mapped from the file, nothing in it executed.

    Raises:
        UserError: the file is absent, truncated, not a fairseq checkpoint, or asks to run code when it is loaded.
    """
    # Only here: these bring fairseq, which takes seconds that --help need not wait for.
    from fairseq_plugins import patches
    from fairseq_plugins.patches.unreadable_checkpoints import plain_content, require_model

    patches.apply()
    state = plain_content(path, mmap=zipfile.is_zipfile(path))
    require_model(path, state)
    return dict(state)


def architecture(state: dict[str, Any]) -> str:
    """The name given to ``--arch``, from a checkpoint of either of fairseq's two styles."""
    config = (state.get("cfg") or {}).get("model") or state.get("args")
    if isinstance(config, dict):
        return str(config.get("_name") or config.get("arch"))
    return str(getattr(config, "arch", None))


def num_updates(state: dict[str, Any]) -> int | None:
    """Updates that the checkpoint has seen; None where it does not say."""
    history = state.get("optimizer_history") or [{}]
    updates = history[-1].get("num_updates")
    return None if updates is None else int(updates)


def memory_of(tensor: Tensor) -> tuple[Any, ...]:
    """What two names of one shared tensor have in common; an empty tensor has no memory to share."""
    if tensor.numel() == 0:
        return (id(tensor),)
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def without_training_state(state: dict[str, Any]) -> dict[str, Any]:
    """The entries of a checkpoint that stay true of other weights: settings, task, updates, place in the data.

    Of the history of its optimizers the last is kept: there is one for every time that the training was resumed.
    """
    kept = {key: value for key, value in state.items() if key not in _OF_TRAINING}
    if "optimizer_history" in kept:
        kept["optimizer_history"] = kept["optimizer_history"][-1:]
    extra = state.get("extra_state") or {}
    kept["extra_state"] = {key: extra[key] for key in _EXTRA_STATE_KEPT if key in extra}
    return kept


def require_file_name(output: Path) -> None:
    """See that a file can have this name, before minutes of work are put into it.

    Raises:
        UserError: it is a directory.
    """
    if output.is_dir():
        raise UserError(f"{output}: is a directory; give the name of a file")


def write_checkpoint(state: dict[str, Any], output: Path) -> None:
    """Write ``state`` to ``output``, which appears when it is whole; the directory is made where there is none.

    Raises:
        UserError: the file cannot be written.
    """
    require_file_name(output)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        # An open file, not a name: torch would write the name into the file, and equal results would differ.
        with whole_file(output) as partial, open(partial, "wb") as stream:
            torch.save(state, stream)
    except (OSError, RuntimeError) as error:
        refusal = _refusal_of_system(error)
        if refusal is None:
            raise
        raise UserError(f"{output}: cannot be written: {refusal.strerror or refusal}") from error


def _refusal_of_system(error: BaseException | None) -> OSError | None:
    """The system's own error behind ``error``: closing an archive that it cut off, torch raises another over it."""
    while error is not None and not isinstance(error, OSError):
        error = error.__context__
    return error
