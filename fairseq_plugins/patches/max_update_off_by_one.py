"""A training that has ended makes one more update, or even epoch, each time it is restarted.

fairseq looks at ``--max-update``, ``--stop-time-hours`` and ``--patience`` only after an update.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer
from fairseq_cli import train

logger = logging.getLogger(__name__)


def load_and_stop(load: Callable[..., Any], cfg: Any, trainer: Trainer, **kwargs: Any) -> Any:
    """``load_checkpoint``, after which a finished training starts no epoch."""
    loaded = load(cfg, trainer, **kwargs)
    limits = trainer.cfg.optimization
    # The time of the checkpoint, which is the same in every process.
    hours = trainer._previous_training_time / 3600
    for name, reached, limit, value in (
        ("num_updates", "max_update", limits.max_update or math.inf, trainer.get_num_updates()),
        ("cumulative_training_time", "stop_time_hours", limits.stop_time_hours or math.inf, hours),
        ("validations without improvement", "patience", cfg.patience, getattr(train.should_stop_early, "num_runs", 0)),
    ):
        if 0 < limit <= value:
            logger.info(f"nothing left to train: {name}: {value} >= {reached}: {limit}")
            # fairseq reads this next; 0 would mean no limit.
            limits.max_epoch = -1
    return loaded


WRAPPED = ((checkpoint_utils, "load_checkpoint", load_and_stop, 10),)
"""The last step before the loop over epochs."""
