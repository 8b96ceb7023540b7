"""Advice: warnings at the start of a training about settings that a paper advises against.

What is wrong is refused, by :attr:`Part.conflicts`. What is legal but against the method's own recipe, such as a
warm-up where the method exists to need none, is said once, before the first update. Settings of the optimizer and the
schedule are known to nobody but fairseq's trainer, so that is where the question is asked.
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
    """Warnings of all parts of ``model`` about the training that ``config`` (fairseq's) describes, each once."""
    designs = [getattr(module, "design", None) for module in model.modules()]
    found = [
        message
        for design in designs
        if isinstance(design, StackDesign)
        for part in design.parts.values()
        for message in part.advice(config)
    ]
    return list(dict.fromkeys(found))


def give(
    build: Callable[..., None], trainer: Trainer, cfg: Any, task: Any, model: nn.Module, *args: Any, **kwargs: Any
) -> None:
    """``Trainer.__init__`` that logs the advice when the trainer has been made."""
    build(trainer, cfg, task, model, *args, **kwargs)
    for message in advice(model, cfg):
        logger.warning(message)


def install() -> None:
    """Let fairseq's trainer give the advice; a second call changes nothing."""
    wrap(Trainer, "__init__", give)
