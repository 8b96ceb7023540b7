"""From half precision to full precision in the middle of a training, without losing a bit of weights or moments.

fairseq holds the weights of a training in half precision once more in float32: all in one flat tensor, or one tensor a
parameter. Those become the weights of the model, and what the optimizer knows of them is handed on to the parameters.
With ``--memory-efficient-fp16`` and ``-bf16`` there is no such copy; the weights are those of the model.
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
    """Whether a training computes in half precision."""
    return any(bool(getattr(trainer.cfg.common, flag, False)) for flag in FLAGS)


def refuse_what_cannot_change(cfg: Any) -> None:
    """For a training in half precision that may have to go on in full precision.

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
    """Let ``trainer`` go on in float32, from its next update on. Every process calls this at the same time."""
    # Not the property, which would build one.
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
    # What adds up gradients over processes has buffers of the old type; it is built anew when it is asked for.
    trainer._wrapped_model = trainer._wrapped_criterion = None


def _float(module: nn.Module) -> None:
    """``module`` in float32. What it has computed for itself at its start was rounded since, and is computed anew."""
    module.float()
    for one in module.modules():
        if isinstance(one, SinusoidalPositionalEmbedding):
            table = one.get_embedding(one.weights.size(0), one.embedding_dim, one.padding_idx)
            one.weights = table.to(one.weights)


def _inner(optimizer: Any) -> Any:
    """The optimizer in full precision inside of ``optimizer``, over the parameters of the model."""
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
    """The parameters of the model that each tensor of the optimizer stands for, in order."""
    if not optimizer.has_flat_params:
        pairs = zip(optimizer.fp32_params, optimizer.fp16_params, strict=True)
        return {master: [parameter] for master, parameter in pairs}
    # One flat tensor, or one for each group of parameters; they follow each other as the parameters do.
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
    """Let ``optimizer`` change ``parts`` in the place of its own tensors, with the state that it has of them.

    It stays the same object: schedules hold on to it.
    """
    states = {master: optimizer.state.get(master, {}) for master in parts}
    optimizer.state.clear()
    for master, parameters in parts.items():
        optimizer.state.update(zip(parameters, _split(states[master], parameters), strict=True))
    for group in optimizer.param_groups:
        group["params"] = [parameter for master in group["params"] for parameter in parts[master]]


def _split(state: dict[str, Any], parameters: list[Tensor]) -> list[dict[str, Any]]:
    """State of one flat tensor as one of each of its parts; what is no tensor of its size is the same for all."""
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
