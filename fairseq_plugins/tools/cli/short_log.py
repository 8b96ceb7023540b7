"""The beginning of a training's log: one line of settings, for the configuration and the modules of the model."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SETTINGS = (
    *("model._name", "model.encoder_layers", "model.decoder_layers", "model.encoder_embed_dim", "criterion._name"),
    *("optimizer._name", "optimization.lr", "lr_scheduler._name", "lr_scheduler.warmup_updates", "dataset.max_tokens"),
    *("dataset.batch_size", "optimization.update_freq", "optimization.max_update", "optimization.max_epoch"),
    *("common.seed", "checkpoint.save_dir"),
)
"""The settings of that line, where a training has them."""
LEFT_OUT = ("can_reuse_epoch_itr", "reuse_dataloader", "rebuild_batches", "num. expert model params: 0", "--user-dir=")
"""Beginnings of lines that say nothing about this training."""


def summary(cfg: Any) -> str:
    """Return one line for the whole configuration of a training."""
    shown = []
    for key in SETTINGS:
        group, _, name = key.partition(".")
        value = getattr(cfg.get(group), name, None)
        if value is not None:
            shown.append(f"{group if name == '_name' else name} {value}")
    return ", ".join(shown)


def shortened(record: logging.LogRecord) -> bool:
    """Accept a record, the configuration in one line; not the modules of a model.

    It filters for the terminal's handler; a file of ``--log-file`` has a handler of its own, which comes first.
    """
    from omegaconf import OmegaConf
    from torch.nn import Module

    if OmegaConf.is_config(record.msg) and "model" in record.msg:
        record.msg = summary(record.msg)
    return not isinstance(record.msg, Module) and not str(record.msg).startswith(LEFT_OUT)


@contextmanager
def short_log() -> Iterator[None]:
    """Shorten what is printed of the log; with ``LOGLEVEL=DEBUG`` nothing is left out."""
    root = logging.getLogger()
    handlers = [] if root.isEnabledFor(logging.DEBUG) else root.handlers
    printing = [handler for handler in handlers if getattr(handler, "stream", None) in (sys.stdout, sys.stderr)]
    for handler in printing:
        handler.addFilter(shortened)
    try:
        yield
    finally:
        for handler in printing:
            handler.removeFilter(shortened)
