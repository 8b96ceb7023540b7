"""Read and write checkpoints, for every command of this package.

Nothing in a file is ever executed, and a file appears under its name only when it is whole.
"""

from pathlib import Path
from typing import Any

import torch

from fairseq_plugins.errors import UserError
from fairseq_plugins.files import whole_file
from fairseq_plugins.integrity import SHA256, plain_content, weights_hash
from fairseq_plugins.process import importing

# These belong to a training, not to weights: the optimiser's moments are of other weights, and the meters would make
# two results from the same files differ by their timestamps.
_OF_TRAINING = ("last_optimizer_state", "fsdp_metadata")
_EXTRA_STATE_KEPT = ("train_iterator", "trained_on")


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a fairseq checkpoint with its tensors mapped from the file, or raise what :func:`plain_content` does."""
    import_fairseq()
    return plain_content(path)


def import_fairseq() -> None:
    """Import fairseq with its patches, one of which tells torch what to load, or raise a UserError; takes seconds."""
    with importing():
        import fairseq.models  # noqa: F401  (the first import of fairseq patches and registers everything)


def architecture(state: dict[str, Any]) -> str:
    """Return the value of ``--arch`` from a checkpoint in either of fairseq's two styles."""
    config = (state.get("cfg") or {}).get("model") or state.get("args")
    if isinstance(config, dict):
        return str(config.get("_name") or config.get("arch"))
    return str(getattr(config, "arch", None))


def num_updates(state: dict[str, Any]) -> int | None:
    """Return the number of updates of the checkpoint; None if it is not recorded."""
    history = state.get("optimizer_history") or [{}]
    updates = history[-1].get("num_updates")
    return None if updates is None else int(updates)


def without_training_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a checkpoint that stay valid for other weights: settings, task, updates, data position.

    Only the last entry of the optimizer history is kept: it has one for every resumption of the training.
    """
    entries = {key: value for key, value in state.items() if key not in _OF_TRAINING}
    if "optimizer_history" in entries:
        entries["optimizer_history"] = entries["optimizer_history"][-1:]
    extra = state.get("extra_state") or {}
    entries["extra_state"] = {key: extra[key] for key in _EXTRA_STATE_KEPT if key in extra}
    return entries


def write_checkpoint(state: dict[str, Any], output: Path) -> None:
    """Write ``state`` to ``output`` atomically, with a hash of its weights, or raise a UserError."""
    state = {**state, "extra_state": {**(state.get("extra_state") or {}), SHA256: weights_hash(state["model"])}}
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        # Pass an open file: torch would write a name into the file, and equal results would differ.
        with whole_file(output) as partial, open(partial, "wb") as stream:
            torch.save(state, stream)
    except (OSError, RuntimeError) as error:
        # torch raises another error when it closes the partial archive; the system's own is behind it.
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__context__
        if cause is None:
            raise
        raise UserError(f"{output}: cannot be written: {cause.strerror or cause}") from error
