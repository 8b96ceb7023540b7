"""A training that has reached ``--max-update`` makes one more update each time it is restarted.

fairseq checks the limit only after an update.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

logger = logging.getLogger(__name__)


def load_and_stop(load: Callable[..., Any], cfg: Any, trainer: Trainer, **kwargs: Any) -> Any:
    """``load_checkpoint``, after which a finished training starts no epoch."""
    loaded = load(cfg, trainer, **kwargs)
    updates, limit = trainer.get_num_updates(), trainer.cfg.optimization.max_update or math.inf
    if updates >= limit:
        logger.info(f"nothing left to train: num_updates: {updates} >= max_update: {limit}")
        # fairseq reads this next; 0 would mean no limit.
        trainer.cfg.optimization.max_epoch = -1
    return loaded


WRAPPED = ((checkpoint_utils, "load_checkpoint", load_and_stop, 10),)
"""The last step before the loop over epochs."""
