"""A resumed training with ``--ema-update-freq`` above 1 averages after different updates from the uninterrupted one.

A checkpoint does not store the number of updates since the last average, so the count starts again. The number follows
from the number of all updates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer


def count_from_start(load: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.load_checkpoint``; without a file, it must not create the average before the first update."""
    extra_state = load(trainer, *args, **kwargs)
    average = trainer.cfg.ema
    if extra_state is not None and average.store_ema and average.ema_update_freq > 1:
        trainer.ema.update_freq_counter = trainer.get_num_updates() % average.ema_update_freq
    return extra_state


WRAPPED = ((Trainer, "load_checkpoint", count_from_start, 30),)
