"""Gradients of a training as views of one buffer, so that fairseq's work for each parameter is one kernel launch.

fairseq sets each gradient to None, and copies each to float32 and each weight back, one launch a parameter
(``fairseq/optim/fp16_optimizer.py``, lines 111 and 148): more than 8,000 launches at 100-100 layers. A CUDA graph needs
gradients that stay in place in any case. Sums, rounding and checkpoints are those of fairseq.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.distributed.legacy_distributed_data_parallel import LegacyDistributedDataParallel
from fairseq.optim import FairseqOptimizer, FP16Optimizer
from torch import Tensor, nn

from fairseq_plugins.training.adam_base import MomentOptimizer, same


def flat_like(params: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Return a buffer of zeros with room for ``params``, all of one type, and a view of it for each."""
    buffer = torch.zeros(sum(p.numel() for p in params), dtype=params[0].dtype, device=params[0].device)
    return buffer, views_of(buffer, params)


def views_of(buffer: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """Cut a flat ``buffer`` into tensors of the shapes of ``params``, in their order."""
    return [part.view(p.shape) for part, p in zip(buffer.split([p.numel() for p in params]), params, strict=True)]


class FlatGradients:
    """The gradients of those parameters that have one; they are attached, and hold the numbers of now.

    A parameter that gets no gradient keeps None, since optimizers then leave its weight decay and its moments out.

    Args:
        params: the trained parameters of the training; a backward pass has run.
        optimizer: fairseq's optimizer of the training.
        model: the model that is called, perhaps in fairseq's wrapper for several processes.

    Attributes:
        params: the parameters with a gradient.
        others: those without.
        views: their gradients.
        buffers: the memory of the views, one buffer for each type.
        fresh: whether no backward pass has run since the gradients were set to zero.
        read_whole: whether the optimizer reads the buffer, and no gradient of a parameter.
    """

    def __init__(self, params: Sequence[nn.Parameter], optimizer: Any, model: nn.Module) -> None:
        self.params = [p for p in params if p.grad is not None]
        self.others = [p for p in params if p.grad is None]
        self.fresh = False
        self.buffers: list[Tensor] = []
        views: dict[int, Tensor] = {}
        for dtype in dict.fromkeys(p.dtype for p in self.params):
            alike = [p for p in self.params if p.dtype == dtype]
            buffer, parts = flat_like(alike)
            self.buffers.append(buffer)
            views.update((id(p), part) for p, part in zip(alike, parts, strict=True))
        self.views = [views[id(p)] for p in self.params]
        torch._foreach_copy_(self.views, [p.grad for p in self.params if p.grad is not None])
        self.attach()
        whole = len(self.params) == len(params) and len(self.buffers) == 1
        self.read_whole = whole and type(optimizer) is FP16Optimizer
        kind, mixin = type(optimizer), _FlatHalf if self.read_whole else _Flat
        bases = (mixin,) if kind in mixin.__mro__ else (mixin, kind)
        # Under the same name, which fairseq compares on resume.
        optimizer.__class__ = type(kind.__name__, bases, {"__module__": kind.__module__})
        optimizer.flat = self
        if self.read_whole:
            optimizer.read_at_once()
        _multiply_at_once(getattr(optimizer, "wrapped_optimizer", optimizer), self.buffers, self.attached)
        for module in model.modules() if whole else ():
            if isinstance(module, LegacyDistributedDataParallel):
                _reduce_at_once(module, self.buffers[0])

    def attach(self) -> None:
        """Make the views the gradients of the parameters, in case that anybody has taken them away."""
        if not self.attached():
            for p, view in zip(self.params, self.views, strict=True):
                p.grad = view

    def attached(self) -> bool:
        """Return whether the views are all gradients that there are."""
        return same([p.grad for p in self.params], self.views) and all(p.grad is None for p in self.others)

    def cut(self, buffers: Sequence[Tensor]) -> list[Tensor]:
        """Cut copies of the buffers into the gradients of the parameters."""
        alike = [[p for p in self.params if p.dtype == buffer.dtype] for buffer in buffers]
        return [view for buffer, params in zip(buffers, alike, strict=True) for view in views_of(buffer, params)]

    def zero(self) -> None:
        """Set all gradients to zero; CUDA graphs attach the views before a batch adds to them."""
        for buffer in self.buffers:
            buffer.zero_()
        self.fresh = True


class _Flat(FairseqOptimizer):
    """Mixin of an optimizer whose gradients are flat. It is listed first, and the class keeps its name."""

    flat: FlatGradients

    def zero_grad(self) -> None:
        if getattr(super().zero_grad, "__func__", None) is not FairseqOptimizer.zero_grad:
            super().zero_grad()  # else it would only take the views away
        for p in self.flat.others:
            p.grad = None
        self.flat.zero()


class _FlatHalf(_Flat, FP16Optimizer):
    """fairseq's optimizer with float32 copies of all weights, in one tensor or in a list."""

    _needs_sync: bool

    def read_at_once(self) -> None:
        """Let copies, gradients and weights be lists, or tensors, that one kernel reads."""
        if self.has_flat_params:
            (copy,) = self.fp32_params.values()
            self.gradient, self.copies = copy.grad, views_of(copy.detach(), self.fp16_params)
        else:
            self.gradient, views = flat_like(self.fp32_params)
            for copy, view in zip(self.fp32_params, views, strict=True):
                view.copy_(copy.grad)
                copy.grad = view
            _multiply_at_once(self.fp32_optimizer, [self.gradient], lambda: True)
            self.copies = [copy.detach() for copy in self.fp32_params]
        if isinstance(inner := self.fp32_optimizer.optimizer, MomentOptimizer):
            inner.kept = inner.gradients()
        self.weights = [p.detach() for p in self.fp16_params]

    def _sync_fp16_grads_to_fp32(self) -> None:
        if self._needs_sync:
            self.gradient.copy_(self.flat.buffers[0])
            self._needs_sync = False

    def _sync_fp32_params_to_fp16(self) -> None:
        # Several buffers: matrices that do not begin at multiples of 16 bytes take slower kernels, with other rounding.
        torch._foreach_copy_(self.weights, self.copies)

    def zero_grad(self) -> None:
        self.gradient.zero_()
        self.flat.zero()
        self._needs_sync = False
        if self.scaler is not None:
            self._multiply_factor = 1.0 / float(self.scaler.loss_scale)


def _multiply_at_once(optimizer: FairseqOptimizer, buffers: list[Tensor], attached: Callable[[], bool]) -> None:
    """Multiply ``buffers`` where fairseq would make lists of gradients, for as long as they are ``attached``."""
    if type(optimizer).multiply_grads is not FairseqOptimizer.multiply_grads:
        return

    def multiply(c: Any) -> None:
        if not attached():
            FairseqOptimizer.multiply_grads(optimizer, c)
            return
        # The operation of fairseq: another one rounds a factor for half precision in another way.
        torch._foreach_mul_(buffers, c.to(buffers[0].device) if isinstance(c, Tensor) else c)

    optimizer.multiply_grads = multiply


def _reduce_at_once(model: LegacyDistributedDataParallel, gradient: Tensor) -> None:
    """Add up the gradients of all processes in place, if fairseq would copy them into one buffer for this."""
    if gradient.numel() > model.buffer_size or any(hasattr(p, "expert") for p in model.parameters()):
        return

    def reduce() -> None:
        if not model.accumulate_grads:
            gradient.div_(model.world_size)
            distributed_utils.all_reduce(gradient, model.process_group)

    model.all_reduce_grads = reduce
