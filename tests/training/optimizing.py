"""Helpers of the tests of optimizers: gradients, updates, and fairseq's optimizers from their configurations."""

from collections.abc import Sequence
from typing import Any

import torch
from fairseq import optim
from omegaconf import OmegaConf
from torch import Tensor, nn

LR = 0.01
OF_TRAINING = ("fp16", "bf16", "memory_efficient_fp16", "memory_efficient_bf16", "fp16_no_flatten_grads", "tpu")


def gradients(count: int, size: int = 5) -> list[Tensor]:
    return list(torch.randn(count, size, dtype=torch.float64, generator=torch.Generator().manual_seed(5)))


def updates(optimizer: torch.optim.Optimizer, p: Tensor, grads: Sequence[Tensor]) -> list[Tensor]:
    values = []
    for grad in grads:
        p.grad = grad.to(p.dtype)
        optimizer.step()
        values.append(p.detach().clone())
    return values


def built(name: str, *parameters: nn.Parameter, **values: Any) -> Any:
    """fairseq's optimizer of this name, by default of one parameter; ``values`` are its settings."""
    config = OmegaConf.structured(optim.OPTIMIZER_DATACLASS_REGISTRY[name])
    common = {one: False for one in OF_TRAINING if one in config}
    config = OmegaConf.merge(config, {**common, "_name": name, "lr": [LR], **values})
    return optim.build_optimizer(config, parameters or [nn.Parameter(torch.ones(2))])
