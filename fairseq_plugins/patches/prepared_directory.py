"""The directory that ``fairseq-deep prepare`` has made, in place of the ``data-bin`` in it, ends in a stack trace.

Every command takes both here, as the commands of this package do. Dictionaries and indices are those that were made.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq import tasks

from fairseq_plugins.sums import QUICK, binarised, require_sums


def setup_on_binarised(setup_task: Callable[..., Any], cfg: Any, *args: Any, **kwargs: Any) -> Any:
    """``setup_task``, which every command calls before it reads data; checkpoints hold the directory that is read."""
    data = getattr(cfg, "data", None)
    if isinstance(data, str):
        if (inner := binarised(data)) != data:
            cfg.data = inner
        for directory in inner.split(":"):
            require_sums(Path(directory), *QUICK)
    return setup_task(cfg, *args, **kwargs)


WRAPPED = ((tasks, "setup_task", setup_on_binarised),)
