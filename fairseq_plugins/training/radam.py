"""RAdam: Adam whose step is scaled by the reliability of its second moment, with decoupled weight decay.

Liu et al., ICLR 2020, https://arxiv.org/abs/1908.03265, Algorithm 2; the optimizer of Admin's recipes. The rule is that
of the code of Admin's results (github.com/LiyuanLucasLiu/Transformer-Clinic, radam_fairseq/radam.py): while rho_t < 5,
which for every usual beta_2 means in the first five updates, the moments accumulate and no step is taken; the weight
decay runs in every update, including those. The same authors released two more rules (github.com/LiyuanLucasLiu/RAdam):
their package (radam/radam.py) takes no step either, and does not decay in these updates; nmt/my_module/radam.py decays,
and steps by the momentum, as ``torch.optim.RAdam`` does. From then on all are the same. Algorithm 2 itself also steps
by the momentum and needs rho_t > 4: one update fewer.
"""

import math
from typing import Any

import torch
from fairseq.optim import register_optimizer

from fairseq_plugins.errors import UserError
from fairseq_plugins.training.adam_base import FairseqMoments, MomentConfig, MomentOptimizer, ParamGroup, Tensors

TRUSTED = 5.0
"""Minimum rho_t of a step."""
LEAST_BETA2 = 1 - 2 / (TRUSTED + 1)
"""rho_t stays below 2 / (1 - beta_2) - 1."""


def step_factor(t: int, beta1: float, beta2: float) -> float | None:
    """Return the factor on the learning rate in update ``t``, from 1; ``None`` for no step.

    It is r_t * sqrt(1 - beta_2^t) / (1 - beta_1^t), the factor of m_t / (sqrt(v_t) + eps).
    """
    rho_inf = 2 / (1 - beta2) - 1
    correction = 1 - beta2**t
    rho = rho_inf - 2 * t * beta2**t / correction
    if rho < TRUSTED:
        return None
    rectification = (rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)
    return math.sqrt(rectification * correction) / (1 - beta1**t)


class RAdam(MomentOptimizer):
    """The rule of Admin's authors; eps as in Adam's text.

    Args:
        params, lr: as of every optimizer.
        betas: decay rates of the moments; the second above 2/3: up to there rho never reaches 5.
        eps: added to the square root of the second moment before its bias is corrected.
        weight_decay: p -= lr * weight_decay * p in every update, before the step.
    """

    supports_flat_params = True

    def _move(self, weights: Tensors, first: Tensors, second: Tensors, t: int, group: ParamGroup) -> None:
        if group["weight_decay"] != 0:
            torch._foreach_add_(weights, weights, alpha=-group["lr"] * group["weight_decay"])
        factor = step_factor(t, *group["betas"])
        if factor is not None:
            roots = torch._foreach_sqrt(second)
            torch._foreach_add_(roots, group["eps"])
            torch._foreach_addcdiv_(weights, first, roots, value=-group["lr"] * factor)


@register_optimizer("radam", dataclass=MomentConfig)
class FairseqRAdam(FairseqMoments):
    """The optimizer RAdam, ``--optimizer radam``."""

    kind = RAdam

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """Return the settings of the torch optimizer; a UserError for betas with which no step is ever taken."""
        settings = super().optimizer_config
        if settings["betas"][1] < LEAST_BETA2:
            raise UserError(f"--adam-betas of radam: the second must be at least {LEAST_BETA2:.4g}, or no step comes")
        return settings
