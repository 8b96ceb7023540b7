"""A kill or a full disk while a checkpoint is saved leaves an incomplete ``checkpoint_last.pt``, or a partial file.

The first name of a checkpoint is renamed when the file is whole, but its other names are copied in place: the last, the
best, the best by metric. An interrupted copy has destroyed the whole file that was there. On a full disk fairseq tries
three times, behind the bytes that it has written before, and logs a stack trace.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_plugins.errors import UserError


def copy_whole(copy: Callable[..., Any], src_path: str, dst_path: str, *args: Any, **kwargs: Any) -> Any:
    """``PathManager.copy`` that is atomic; remote addresses are not changed."""
    if "://" in str(dst_path):
        return copy(src_path, dst_path, *args, **kwargs)
    # The suffix of the file that fairseq itself writes before it renames.
    partial = f"{dst_path}.tmp"
    Path(partial).unlink(missing_ok=True)  # which may be a link
    try:
        done = copy(src_path, partial, *args, **kwargs)
        if done:
            os.replace(partial, dst_path)
        return done
    finally:
        Path(partial).unlink(missing_ok=True)


def save_or_leave_nothing(save: Callable[..., Any], obj: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
    """``torch_persistent_save``, which calls itself with a stream for a name without a directory.

    A UserError if the system refuses, for instance because the disk is full; no partial file is left.
    """
    try:
        Path(f"{filename}.tmp").unlink(missing_ok=True)  # which may be a link
        return save(obj, filename, *args, **kwargs)
    except BaseException as error:
        Path(f"{filename}.tmp").unlink(missing_ok=True)
        refusal: BaseException | None = error
        while refusal is not None and not isinstance(refusal, OSError):
            refusal = refusal.__context__  # torch raises another error when it closes the partial archive
        if refusal is None:
            raise
        raise UserError(f"checkpoint {filename} cannot be written: {refusal.strerror or refusal}") from error


def save_once(save: Callable[..., Any], obj: Any, stream: Any) -> Any:
    """``_torch_persistent_save`` without further tries, which would write behind the first."""
    return save(obj, stream) if isinstance(stream, str) else torch.save(obj, stream)


WRAPPED = (
    (checkpoint_utils, "torch_persistent_save", save_or_leave_nothing),
    (checkpoint_utils, "_torch_persistent_save", save_once),
    (PathManager, "copy", copy_whole),
)
