"""``--amp`` in bfloat16, on a CPU and on a GPU: products of matrices in half precision, everything else in float32.

fairseq's ``--amp`` runs the forward pass of a GPU in float16, with a scale for the loss. On a CPU it silently trains in
float32. With this package::

    --amp                 on a CPU: bfloat16; on a GPU: float16, as fairseq
    --amp --bf16          bfloat16 on both

or in YAML ``common: {amp: true, bf16: true}``. Weights, their gradients, the optimizer and checkpoints stay in float32,
other than with ``--bf16`` alone; ``torch.autocast`` runs products of matrices in bfloat16. Embeddings are in float32,
and the sum of a float32 and a bfloat16 tensor is in float32: so the residual stream and its layer norms are in float32,
as are fairseq's softmax and its losses. bfloat16 has the range of float32, so the loss needs no scale. Validation is in
float32, as with fairseq's ``--amp``.

A CPU without instructions for bfloat16 (``avx512_bf16`` or ``amx_bf16`` in ``/proc/cpuinfo``, ``bf16`` on ARM) computes
the same in software, slower than float32: the training starts with a warning.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fairseq.optim import AMPOptimizer
from fairseq.trainer import Trainer
from torch import nn

from fairseq_plugins.errors import UserError
from fairseq_plugins.patches.wrapping import wrap
from fairseq_plugins.processor import CPUINFO, has_bf16

logger = logging.getLogger(__name__)


def in_bf16(cfg: Any) -> bool:
    """Return whether fairseq's ``cfg`` means automatic mixed precision in bfloat16."""
    common = cfg.common
    return bool(common.amp and (common.bf16 or common.cpu or not torch.cuda.is_available()))


def lacks_bf16(cpuinfo: Path = CPUINFO) -> bool:
    """Return whether this CPU is known to have no instructions for bfloat16."""
    return has_bf16(cpuinfo) is False


def build_mixed(
    build: Callable[..., None],
    trainer: Trainer,
    cfg: Any,
    task: Any,
    model: nn.Module,
    criterion: Any,
    *args: Any,
    **kwargs: Any,
) -> None:
    """``Trainer.__init__`` that keeps float32 weights under ``--amp --bf16``, and runs the criterion under autocast.

    Raises:
        UserError: ``--memory-efficient-bf16`` beside ``--amp``.
    """
    if not in_bf16(cfg):
        build(trainer, cfg, task, model, criterion, *args, **kwargs)
        return
    if cfg.common.memory_efficient_bf16 or cfg.common.memory_efficient_fp16:
        raise UserError("--amp keeps float32 weights, --memory-efficient-bf16 and -fp16 do not: drop one of the two")
    wanted, cfg.common.bf16 = cfg.common.bf16, False  # which would convert the weights
    try:
        build(trainer, cfg, task, model, criterion, *args, **kwargs)
    finally:
        cfg.common.bf16 = wanted
    if not trainer.cuda and lacks_bf16():
        logger.warning("--amp: this CPU only emulates bfloat16, which is slower than float32; drop --amp")
    own = trainer.get_criterion()
    own.forward = functools.partial(_forward, trainer, own.forward)


def _forward(trainer: Trainer, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run the criterion's forward pass, in training under autocast, for as long as the trainer has ``--amp``."""
    training = trainer.get_criterion().training and trainer.cfg.common.amp
    with torch.autocast(trainer.device.type, torch.bfloat16, enabled=training):
        return forward(*args, **kwargs)


def without_scale(build: Callable[..., AMPOptimizer], cfg: Any, params: Any, **kwargs: Any) -> AMPOptimizer:
    """``AMPOptimizer.build_optimizer`` that does not scale the loss in bfloat16."""
    optimizer = build(cfg, params, **kwargs)
    if in_bf16(cfg):
        scaler = torch.amp.GradScaler(enabled=False)
        # If a gradient is not finite, fairseq multiplies the scale by it and fails below a minimum, as float32 does.
        scaler._backoff_factor = 0.0
        optimizer._grad_scaler = scaler
    return optimizer


def install() -> None:
    """Wrap the functions that build trainer and optimizer; a second call changes nothing."""
    wrap(Trainer, "__init__", build_mixed)
    wrap(AMPOptimizer, "build_optimizer", without_scale)
