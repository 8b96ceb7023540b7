"""``--fp16`` on a CPU ends in "Torch not compiled with CUDA enabled".

The master weights and the handling of an overflow require a GPU. This is reported in one line instead; ``--bf16`` has
neither and trains on a CPU. Translating with ``--fp16`` works there, slowly, and gets a warning.
https://github.com/facebookresearch/fairseq/issues/2575 asks for a solution.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from fairseq import options
from fairseq.trainer import Trainer

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.wrapping import wrap

logger = logging.getLogger(__name__)

ADVICE = "on a CPU leave out --fp16 (in hydra-train add common.fp16=false), or give --bf16 instead"


def refuse_flat_masters(build: Callable[..., None], trainer: Trainer, cfg: Any, *args: Any, **kwargs: Any) -> None:
    """``Trainer.__init__`` that refuses, before anything is built, an optimiser that does not work on a CPU.

    Raises:
        UserError: fp16 with flat master weights, which fairseq puts on a GPU.
    """
    common = cfg.common
    flat = common.fp16 and not (common.memory_efficient_fp16 or common.fp16_no_flatten_grads)
    if flat and (common.cpu or not torch.cuda.is_available()):
        raise UserError(f"--fp16 needs a GPU; {ADVICE}")
    build(trainer, cfg, *args, **kwargs)


def explain_overflow(train_step: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.train_step``, which moves the norm of an overflown gradient to a GPU.

    Raises:
        UserError: there is none.
    """
    try:
        return train_step(trainer, *args, **kwargs)
    except (AssertionError, RuntimeError) as error:
        if trainer.cuda or not trainer.cfg.common.fp16 or not isinstance(error.__context__, OverflowError):
            raise
        raise UserError(f"--fp16 met a gradient overflow, which fairseq can only skip on a GPU; {ADVICE}") from error


def warn_of_translation(parse: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``parse_args_and_arch``, after which a command that reads a model warns of ``--fp16`` without a GPU."""
    parsed = parse(*args, **kwargs)
    values = vars(parsed[0] if isinstance(parsed, tuple) else parsed)
    without_gpu = values.get("cpu") or not torch.cuda.is_available()
    if values.get("fp16") and values.get("path") and without_gpu:
        logger.warning("--fp16 on a CPU rounds to 16 bits and is slower than without it: leave it out")
    return parsed


def apply() -> None:
    """Wrap the trainer's start and its step, and the parser of all other commands."""
    wrap(options, "parse_args_and_arch", warn_of_translation, order=10)
    wrap(Trainer, "__init__", refuse_flat_masters, order=60)
    wrap(Trainer, "train_step", explain_overflow, order=40)
