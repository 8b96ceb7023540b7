"""LAMB: Adam's step with decoupled decay, scaled in each tensor to the tensor's own norm; for large batches.

You et al., ICLR 2020, https://arxiv.org/abs/1904.00962, Algorithm 2; the optimizer of ReZero's language models. In
update t, for each tensor x with gradient g::

    m = beta_1 m + (1 - beta_1) g                   v = beta_2 v + (1 - beta_2) g^2
    r = m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + eps)
    u = r + weight_decay x                          x -= lr phi(|x|) / |u| u

phi is a bounded function of the norm; the paper gives no bounds, and its code (https://github.com/tensorflow/addons,
optimizers/lamb.py) has none: phi(z) = z. Taken literally, a tensor that is zero would stay zero. As in that code, |x| /
|u| is 1 if one of the norms is 0, so biases and ReZero's alpha leave zero with Adam's first step. A tensor of a single
number then moves by the factor 1 - lr or 1 + lr, and keeps its sign.

fairseq's own ``lamb`` is that of NVIDIA's apex; without apex it fails, and YAML cannot select it. This one takes its
name and flags. It leaves clipping to ``--clip-norm``, while apex clips the norm at 1, and also scales tensors without
weight decay, which apex does not.
"""

# No `from __future__ import annotations`: fairseq makes flags of the types of dataclass fields.

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import OPTIMIZER_REGISTRY, register_optimizer
from omegaconf import II

from fairseq_plugins.training.adam_base import FairseqMoments, MomentOptimizer, ParamGroup, Tensors


@dataclass
class LambConfig(FairseqDataclass):
    """Flags of ``--optimizer lamb``, with fairseq's names and defaults."""

    lamb_betas: Any = field(
        default="(0.9, 0.999)", metadata={"help": "decay rates of the two moments, as '(0.9, 0.999)'"}
    )
    lamb_eps: float = field(
        default=1e-8, metadata={"help": "added to the square root of the second moment, after its bias is corrected"}
    )
    weight_decay: float = field(
        default=0.0,
        metadata={"help": "decoupled weight decay, part of the step that is scaled to the norm of its tensor"},
    )
    lr: list[float] = II("optimization.lr")


class Lamb(MomentOptimizer):
    """Algorithm 2 with phi(z) = z.

    Args:
        params: parameters or groups, not flattened into one tensor, since each has its own norm.
        lr: learning rate, the step of a tensor relative to its norm.
        betas: decay rates of the moments.
        eps: added to the square root of the second moment after its bias is corrected.
        weight_decay: added to the step times the weights, before the step is scaled.
    """

    supports_flat_params = False

    def _move(self, weights: Tensors, first: Tensors, second: Tensors, t: int, group: ParamGroup) -> None:
        beta1, beta2 = group["betas"]
        roots = torch._foreach_sqrt(second)
        torch._foreach_div_(roots, math.sqrt(1 - beta2**t))
        torch._foreach_add_(roots, group["eps"])
        steps = list(torch._foreach_div(first, roots))
        torch._foreach_div_(steps, 1 - beta1**t)
        if group["weight_decay"] != 0:
            torch._foreach_add_(steps, weights, alpha=group["weight_decay"])
        sizes, lengths = (torch.stack(torch._foreach_norm(tensors)) for tensors in (weights, steps))
        ratios = torch.where((sizes > 0) & (lengths > 0), sizes / lengths, 1.0)
        for step, ratio in zip(steps, ratios.unbind(), strict=True):
            step.mul_(ratio)
        torch._foreach_add_(weights, steps, alpha=-group["lr"])


# fairseq has an optimizer of this name already.
OPTIMIZER_REGISTRY.pop("lamb", None)


@register_optimizer("lamb", dataclass=LambConfig)
class FairseqLamb(FairseqMoments):
    """The optimizer LAMB, ``--optimizer lamb``."""

    kind = Lamb
    prefix = "lamb"
