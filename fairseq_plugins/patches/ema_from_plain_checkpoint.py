"""``--store-ema`` on a checkpoint that has no average ends in "KeyError: 'model'".

fairseq should start the average from the weights of the checkpoint, but has deleted them by then. Here the weights are
stored where it looks for the average first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

logger = logging.getLogger(__name__)

_average_is_wanted: ContextVar[bool] = ContextVar("average_is_wanted", default=False)
"""Whether the file is being read for a trainer that averages; only the trainer has the configuration."""


def say_what_is_wanted(load: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.load_checkpoint``."""
    before = _average_is_wanted.set(trainer.cfg.ema.store_ema)
    try:
        return load(trainer, *args, **kwargs)
    finally:
        _average_is_wanted.reset(before)


def weights_for_average(load: Callable[..., dict[str, Any]], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """``load_checkpoint_to_cpu``, whose state the first process sends to all others."""
    state = load(*args, **kwargs)
    if _average_is_wanted.get() and "ema" not in state["extra_state"]:
        logger.warning("the checkpoint has no average of the weights (--store-ema): it starts from the weights")
        state["extra_state"]["ema"] = state["model"]
    return state


WRAPPED = (
    (Trainer, "load_checkpoint", say_what_is_wanted, 40),
    (checkpoint_utils, "load_checkpoint_to_cpu", weights_for_average, 10),
)
