"""Tensors that autograd keeps for the backward pass."""

from collections.abc import Callable

import torch
from torch import Tensor


def saved_tensors(run: Callable[[], Tensor]) -> list[Tensor]:
    """Every tensor that the graph of ``run`` holds; they stay alive, so that no address is used twice."""
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        kept_output = run()
    assert kept_output.requires_grad
    return kept
