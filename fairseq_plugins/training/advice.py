"""Advice: warnings at the start of a training about settings that a paper advises against.

:attr:`Part.conflicts` refuses wrong settings. Legal settings that contradict the method's own recipe, such as a warm-up
for a method that is meant to train without it, get one warning before the first update. Only fairseq's trainer has the
settings of the optimizer and the schedule, so the check is there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer
from torch import nn

from fairseq_plugins.core.design import StackDesign
from fairseq_plugins.patches.wrapping import wrap

logger = logging.getLogger(__name__)


def advice(model: nn.Module, config: Any) -> list[str]:
    """Return the warnings of all parts of ``model`` about fairseq's ``config``, each once."""
    designs = [getattr(module, "design", None) for module in model.modules()]
    warnings = [
        message
        for design in designs
        if isinstance(design, StackDesign)
        for part in design.parts.values()
        for message in part.advice(config)
    ]
    return list(dict.fromkeys(warnings))


def give(
    build: Callable[..., None], trainer: Trainer, cfg: Any, task: Any, model: nn.Module, *args: Any, **kwargs: Any
) -> None:
    """``Trainer.__init__`` that logs the advice after the trainer is built."""
    build(trainer, cfg, task, model, *args, **kwargs)
    for message in advice(model, cfg):
        logger.warning(message)


def install() -> None:
    """Let fairseq's trainer give the advice; a second call changes nothing."""
    wrap(Trainer, "__init__", give, order=30)
