"""fairseq's Adam by lists of tensors (``foreach_adam``), and in one pass over the memory (``fused_adam``).

fairseq's ``adam`` calls about nine operations for each tensor, from Python and, on a GPU, as a kernel each:
60-60 layers have some 2,500 tensors. ``torch._foreach_*`` takes a list of tensors in one call, and on a GPU in few
kernels; torch's fused kernel, for CPUs and GPUs, also reads each number once. Flags and defaults are those of ``adam``.
In update t, for each tensor p with gradient g, fairseq computes (``fairseq/optim/adam.py``)::

    m = beta_1 m + (1 - beta_1) g               v = beta_2 v + (1 - beta_2) g^2
    p -= weight_decay lr p
    p -= lr sqrt(c_2) / c_1 m / (sqrt(v) + eps)             with c_i = 1 - beta_i^t

``foreach_adam`` does the same in the same order, so weights and checkpoints equal those of ``adam`` bit for bit on a
CPU. ``torch.optim.AdamW`` has another last line::

    p -= lr / c_1 m / (sqrt(v) / sqrt(c_2) + eps)

With eps / sqrt(c_2) for its eps, the two are equal; but torch's fused kernel rounds in another order, so a training
with ``fused_adam`` is not the one of ``adam`` bit for bit. The state of both is that of ``adam``. fairseq compares the
names of optimizers on resume, so the classes have the name of fairseq's, and a training may change to them and back.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from fairseq.optim import register_optimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from torch import Tensor

from fairseq_plugins.training.adam_base import MomentOptimizer, ParamGroup, Tensors


class Adam(MomentOptimizer):
    """fairseq's ``Adam``, with its state; its ``amsgrad``, which no flag of fairseq sets, is not supported.

    Args:
        params: parameters or torch's parameter groups.
        settings: ``lr``, ``betas``, ``eps`` and ``weight_decay``.
    """

    supports_flat_params = True

    def __init__(self, params: Iterable[Any], **settings: Any) -> None:
        super().__init__(params, **settings)
        self.defaults["amsgrad"] = False
        for group in self.param_groups:
            group["amsgrad"] = False

    def _move(self, weights: Tensors, first: Tensors, second: Tensors, t: int, group: ParamGroup) -> None:
        beta1, beta2 = group["betas"]
        roots = torch._foreach_sqrt(second)
        torch._foreach_add_(roots, group["eps"])
        if group["weight_decay"] != 0:
            torch._foreach_add_(weights, weights, alpha=-group["weight_decay"] * group["lr"])
        factor = group["lr"] * math.sqrt(1 - beta2**t) / (1 - beta1**t)
        torch._foreach_addcdiv_(weights, first, roots, value=-factor)


class FusedAdam(Adam):
    """fairseq's ``Adam``, with its state, to rounding."""

    # The kernel keeps no intermediate results that a cache would have to hold.
    chunk_on_cpu = Adam.chunk

    def _apply(
        self, weights: Tensors, grads: Tensors, first: Tensors, second: Tensors, t: int, group: ParamGroup
    ) -> None:
        beta1, beta2 = group["betas"]
        torch._fused_adamw_(
            weights,
            grads,
            first,
            second,
            [],
            [torch.full((), float(t), device=weights[0].device)] * len(weights),
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"] / math.sqrt(1 - beta2**t),
            amsgrad=False,
            maximize=False,
        )


@register_optimizer("foreach_adam", dataclass=FairseqAdamConfig)
class FairseqForeachAdam(FairseqAdam):
    """Adam by operations on lists of tensors, ``--optimizer foreach_adam``."""

    kind: type[Adam] = Adam

    def __init__(self, cfg: Any, params: Iterable[Any]) -> None:
        params = list(params)
        super().__init__(cfg, params)
        self._optimizer = self.kind(params, **self.optimizer_config)
        self._experts = any(hasattr(p, "expert") for p in self.params)  # fairseq marks them when it builds the model

    @torch.no_grad()
    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Clip as ``fairseq.utils.clip_grad_norm_`` does, with one call for the norms of all tensors.

        Args:
            max_norm: the largest norm of all gradients together; 0 leaves them as they are.
            aggregate_norm_fn: adds up the norms of several processes.

        Returns:
            the norm before clipping, float32.
        """
        grads = [grad for grad in self._optimizer.gradients() if grad is not None]
        if len(grads) < 2 or self._experts:  # a mixture of experts has a rule of its own
            return super().clip_grad_norm(max_norm, aggregate_norm_fn)
        norm = torch.norm(torch.stack(torch._foreach_norm(grads, 2, dtype=torch.float32)))
        if aggregate_norm_fn is not None:
            norm = aggregate_norm_fn(norm)
        if max_norm > 0:
            torch._foreach_mul_(grads, (float(max_norm) / (norm + 1e-6)).clamp_(max=1))
        return norm


@register_optimizer("fused_adam", dataclass=FairseqAdamConfig)
class FairseqFusedAdam(FairseqForeachAdam):
    """Adam in one kernel, ``--optimizer fused_adam``."""

    kind = FusedAdam


# fairseq compares the names of optimizers when a training is resumed.
FairseqForeachAdam.__name__ = FairseqFusedAdam.__name__ = FairseqAdam.__name__
