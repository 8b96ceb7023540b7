"""``--store-ema`` on a checkpoint that has no average ends in "KeyError: 'model'".

fairseq should start the average from the weights of the checkpoint, but has deleted them by then. Here the weights are
stored where it looks for the average first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from fairseq import checkpoint_utils

from fairseq_plugins.checkpoints.provenance import loading

logger = logging.getLogger(__name__)


def weights_for_average(load: Callable[..., dict[str, Any]], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """``load_checkpoint_to_cpu``, whose state the first process sends to all others."""
    state = load(*args, **kwargs)
    reader = loading.get()
    if reader and reader[0].cfg.ema.store_ema and "ema" not in state["extra_state"]:
        logger.warning("the checkpoint has no average of the weights (--store-ema): it starts from the weights")
        state["extra_state"]["ema"] = state["model"]
    return state


WRAPPED = ((checkpoint_utils, "load_checkpoint_to_cpu", weights_for_average, 10),)
