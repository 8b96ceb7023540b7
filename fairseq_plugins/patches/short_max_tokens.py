"""A ``--max-tokens`` below the longest sentence stops validation and generation, but training leaves sentences out.

fairseq takes it there for a limit of the model, and warns among many other lines. Here training stops as the others do.
https://github.com/facebookresearch/fairseq/issues/2650
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq import utils
from fairseq.trainer import Trainer

from fairseq_plugins.wrapping import replaced


def train_on_all(get_train_iterator: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.get_train_iterator``, where ``--max-tokens`` is the last of the limits."""
    resolve = utils.resolve_max_positions
    with replaced(utils, resolve_max_positions=lambda *limits: resolve(*limits[:-1])):
        return get_train_iterator(trainer, *args, **kwargs)


WRAPPED = ((Trainer, "get_train_iterator", train_on_all),)
