"""A resumed ``--fp16`` or ``--bf16`` training loses the float32 digits of its weights, and its count of overflows.

fairseq trains float32 master weights and saves only their rounded copy, so a resumed training continues from rounded
weights. Of the loss scale it saves the value, but not the updates since the last overflow, after which the scale grows;
of the scale of ``--amp`` it saves nothing. Here both are keys of the optimizer's state, like fairseq's ``loss_scale``,
which stock fairseq does not read. A checkpoint without them loads as before.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch
from fairseq.optim import AMPOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer
from torch import Tensor

from fairseq_plugins.errors import UserError

logger = logging.getLogger(__name__)

MASTERS, SCALER = "master_weights", "loss_scaler"
COUNTS = ("_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale")
"""State of fairseq's own scaler besides its scale."""


def master_weights(optimizer: Any) -> list[Tensor]:
    """Return the float32 tensors behind the weights of ``optimizer``; none if there are no others."""
    masters = getattr(optimizer, "fp32_params", None)
    if masters is None:
        return []
    # One flat tensor for each device, or one for each parameter.
    return [tensor.data for tensor in (masters.values() if isinstance(masters, dict) else masters)]


def save_exactly(state_dict: Callable[..., dict[str, Any]], optimizer: Any) -> dict[str, Any]:
    """``state_dict`` of an optimizer in half precision, with its master weights and the counts of its scaler."""
    state = state_dict(optimizer)
    if masters := master_weights(optimizer):
        state[MASTERS] = masters
    scaler = optimizer.scaler
    if isinstance(scaler, torch.amp.GradScaler):
        if scaler.is_enabled():
            state[SCALER] = scaler.state_dict()
    elif scaler is not None:
        state[SCALER] = {name: getattr(scaler, name) for name in COUNTS}
    return state


def load_exactly(
    load: Callable[..., None], optimizer: Any, state_dict: dict[str, Any], *args: Any, **kwargs: Any
) -> None:
    """``load_state_dict`` of an optimizer in half precision; a UserError for the master weights of other parameters."""
    load(optimizer, state_dict, *args, **kwargs)
    scaler, counted = optimizer.scaler, state_dict.get(SCALER)
    if scaler is not None and counted:
        if not isinstance(scaler, torch.amp.GradScaler):
            vars(scaler).update(counted)
        elif scaler.is_enabled():
            scaler.load_state_dict(counted)
    if not (masters := master_weights(optimizer)):
        return
    if (saved := state_dict.get(MASTERS)) is None:
        logger.warning("the checkpoint has no float32 master weights: they start from its rounded weights")
        return
    if [tensor.shape for tensor in saved] != [tensor.shape for tensor in masters]:
        raise UserError(
            "the float32 master weights in this checkpoint do not match the model or --fp16-no-flatten-grads: "
            "keep the settings, or use --reset-optimizer"
        )
    for master, value in zip(masters, saved, strict=True):
        master.copy_(value)


OPTIMIZERS = (FP16Optimizer, MemoryEfficientFP16Optimizer, AMPOptimizer)
WRAPPED = (
    *((optimizer, "state_dict", save_exactly) for optimizer in OPTIMIZERS),
    *((optimizer, "load_state_dict", load_exactly) for optimizer in OPTIMIZERS),
)
