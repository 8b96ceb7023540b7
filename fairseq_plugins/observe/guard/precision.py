"""Switch from half to full precision in the middle of a training, without losing a bit of weights or moments.

fairseq keeps a float32 copy of the weights of a training in half precision: one flat tensor, or one tensor per
parameter. The copy becomes the weights of the model, and the parameters get the optimizer's state. With
``--memory-efficient-fp16`` and ``-bf16`` there is no such copy; the weights are those of the model.
"""

from __future__ import annotations

from typing import Any

import torch
from fairseq.modules import SinusoidalPositionalEmbedding
from fairseq.optim import AMPOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer
from fairseq.trainer import Trainer
from omegaconf import open_dict
from torch import Tensor, nn

from fairseq_plugins.errors import UserError

FLAGS = ("fp16", "memory_efficient_fp16", "bf16", "memory_efficient_bf16", "amp")


def is_half(trainer: Trainer) -> bool:
    """Return whether a training computes in half precision."""
    return any(bool(getattr(trainer.cfg.common, flag, False)) for flag in FLAGS)


def refuse_what_cannot_change(cfg: Any) -> None:
    """Refuse a training in half precision that could not continue in full precision.

    Raises:
        UserError: its optimizer is in several parts, or in several processes.
    """
    if cfg.distributed_training.zero_sharding != "none":
        raise UserError(
            "--divergence-action fp32 cannot be combined with --zero-sharding: it cannot gather a sharded optimizer"
        )
    if getattr(cfg.optimizer, "_name", None) == "composite":
        raise UserError("--divergence-action fp32 cannot change the precision of --optimizer composite")
    if cfg.distributed_training.pipeline_model_parallel:
        raise UserError("--divergence-action fp32 does not work with --pipeline-model-parallel")


def to_full(trainer: Trainer) -> None:
    """Continue ``trainer`` in float32 from its next update on. Every process calls this at the same time."""
    # Not the property, which would build an optimizer.
    optimizer = trainer._optimizer
    if optimizer is not None:
        optimizer.zero_grad()
    _float(trainer.get_model())
    _float(trainer.get_criterion())
    if optimizer is not None:
        trainer._optimizer = _inner(optimizer)
        trainer._lr_scheduler.optimizer = trainer._optimizer
    if trainer._ema is not None:
        _float(trainer._ema.get_model())
    with open_dict(trainer.cfg.common):
        for flag in FLAGS:
            setattr(trainer.cfg.common, flag, False)
    # The wrapper that reduces gradients has buffers of the old type; it is rebuilt at its next use.
    trainer._wrapped_model = trainer._wrapped_criterion = None


def _float(module: nn.Module) -> None:
    """Convert ``module`` to float32. Tensors that it computed itself have been rounded, so they are recomputed."""
    module.float()
    for one in module.modules():
        if isinstance(one, SinusoidalPositionalEmbedding):
            table = one.get_embedding(one.weights.size(0), one.embedding_dim, one.padding_idx)
            one.weights = table.to(one.weights)


def _inner(optimizer: Any) -> Any:
    """Return the full-precision optimizer inside ``optimizer``, over the parameters of the model."""
    if isinstance(optimizer, AMPOptimizer):
        return optimizer.fp32_optimizer
    if isinstance(optimizer, MemoryEfficientFP16Optimizer):
        return optimizer.wrapped_optimizer
    if isinstance(optimizer, FP16Optimizer):
        # The model is in float32 already, so that this copies every bit.
        optimizer._sync_fp32_params_to_fp16()
        _hand_on(optimizer.optimizer, _parts(optimizer))
        return optimizer.fp32_optimizer
    return optimizer


def _parts(optimizer: FP16Optimizer) -> dict[Tensor, list[Tensor]]:
    """Return the parameters of the model behind each tensor of the optimizer, in order."""
    if not optimizer.has_flat_params:
        pairs = zip(optimizer.fp32_params, optimizer.fp16_params, strict=True)
        return {master: [parameter] for master, parameter in pairs}
    # One flat tensor, or one for each group of parameters, in the order of the parameters.
    rest = iter(optimizer.fp16_params)
    parts: dict[Tensor, list[Tensor]] = {}
    for master in optimizer.params:
        parts[master], missing = [], master.numel()
        while missing > 0:
            parameter = next(rest)
            parts[master].append(parameter)
            missing -= parameter.numel()
    return parts


def _hand_on(optimizer: torch.optim.Optimizer, parts: dict[Tensor, list[Tensor]]) -> None:
    """Let ``optimizer`` update ``parts`` instead of its own tensors, with their state.

    It stays the same object, since schedules refer to it.
    """
    states = {master: optimizer.state.get(master, {}) for master in parts}
    optimizer.state.clear()
    for master, parameters in parts.items():
        optimizer.state.update(zip(parameters, _split(states[master], parameters), strict=True))
    for group in optimizer.param_groups:
        group["params"] = [parameter for master in group["params"] for parameter in parts[master]]


def _split(state: dict[str, Any], parameters: list[Tensor]) -> list[dict[str, Any]]:
    """Split the state of one flat tensor into states of its parts; what is not a tensor of its size is copied."""
    if len(parameters) == 1 or not state:
        return [state] * len(parameters)
    total = sum(one.numel() for one in parameters)
    states: list[dict[str, Any]] = [{} for _ in parameters]
    for name, value in state.items():
        if isinstance(value, Tensor) and value.numel() == total and value.dim() == 1:
            parts = value.split([one.numel() for one in parameters])
            values: list[Any] = [part.view_as(one).clone() for part, one in zip(parts, parameters, strict=True)]
        else:
            values = [value.clone() if isinstance(value, Tensor) else value for _ in parameters]
        for part_state, part in zip(states, values, strict=True):
            part_state[name] = part
    return states
