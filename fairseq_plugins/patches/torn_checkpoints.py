"""A kill while a checkpoint is saved leaves an incomplete ``checkpoint_last.pt``, from which nothing resumes.

The first name of a checkpoint is renamed when the file is whole, but its other names are copied in place: the last, the
best, the best by metric. An interrupted copy (a kill, a full disk) has destroyed the whole file that was there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq.file_io import PathManager

from fairseq_plugins.patches.wrapping import wrap


def copy_whole(copy: Callable[..., Any], src_path: str, dst_path: str, *args: Any, **kwargs: Any) -> Any:
    """``PathManager.copy`` that is atomic; remote addresses are not changed."""
    if "://" in str(dst_path):
        return copy(src_path, dst_path, *args, **kwargs)
    # The suffix of the file that fairseq itself writes before it renames.
    partial = f"{dst_path}.tmp"
    try:
        done = copy(src_path, partial, *args, **kwargs)
        if done:
            os.replace(partial, dst_path)
        return done
    finally:
        Path(partial).unlink(missing_ok=True)


def apply() -> None:
    """Wrap the one function that copies checkpoints."""
    wrap(PathManager, "copy", copy_whole)
