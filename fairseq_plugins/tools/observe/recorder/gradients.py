"""Norms of parameter gradients, by sub-layer, as the optimizer sees them before clipping.

In half precision, gradients are multiplied by the loss scale and summed over a batch; their norm overflows long before
the gradient itself is large (https://github.com/facebookresearch/fairseq/issues/4555). Here norms are taken in float32,
squared in float64, and multiplied by the factor that the optimizer holds, which makes them means over the batch.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from fairseq_plugins.core.sub_layers import place_of


def group_of(parameter: str) -> str:
    """``encoder.layers.0.ffn`` for ``encoder.layers.0.fc1.weight``; outside of the sub-layers the module's path."""
    place = place_of(parameter)
    if place is not None and place.site is not None:
        return place.name
    return parameter.rpartition(".")[0] or parameter


def loss_scale(optimizer: Any) -> float | None:
    """Return the loss scale of half precision; ``None`` without one."""
    scaler = getattr(optimizer, "scaler", None)
    if scaler is None:
        return None
    return float(scaler.loss_scale if hasattr(scaler, "loss_scale") else scaler.get_scale())


def has_scale(optimizer: Any) -> bool:
    """Return whether the loss is scaled, without waiting for a GPU; torch's scaler does nothing on a CPU."""
    scaler = getattr(optimizer, "scaler", None)
    return scaler is not None and bool(getattr(scaler, "is_enabled", lambda: True)())


def remaining_factor(optimizer: Any) -> float:
    """Return the factor that the gradients still lack, between ``multiply_grads`` and clipping.

    fairseq's half-precision optimizers keep 1 / (loss scale * sample size) separately until the step. Torch's automatic
    mixed precision has divided by the sample size but not by the scale; other optimizers lack nothing.
    """
    if hasattr(optimizer, "_multiply_factor"):
        return float(optimizer._multiply_factor)
    return 1.0 / (loss_scale(optimizer) or 1.0)


def gradient_norms(modules: Iterable[nn.Module], factor: float) -> dict[str, float]:
    """Return ``<group>/gradient_norm`` for each group of parameters, and ``gradient_norm`` of all.

    The gradient on a parameter in half precision is read, which holds the same numbers as its copy in float32 until
    the step, whether that copy is one flat tensor, one a parameter, or absent (``--memory-efficient-fp16``).
    """
    names, norms = [], []
    for module in modules:
        for name, parameter in module.named_parameters():
            gradient = parameter.grad
            if gradient is not None:
                values = gradient.coalesce().values() if gradient.is_sparse else gradient
                names.append(group_of(name))
                norms.append(torch.linalg.vector_norm(values.detach(), dtype=torch.float32))
    squares: dict[str, float] = {}
    parts = torch.stack(norms).double().mul(factor).square().tolist() if norms else []
    for name, square in zip(names, parts, strict=True):
        squares[name] = squares.get(name, 0.0) + square
    result = {f"{name}/gradient_norm": math.sqrt(square) for name, square in squares.items()}
    return {"gradient_norm": math.sqrt(sum(squares.values())), **result}
