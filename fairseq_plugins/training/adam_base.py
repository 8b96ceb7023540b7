"""Base of optimizers that keep two moments of the gradient: state, half precision, settings."""

# No `from __future__ import annotations`: fairseq makes flags of the types of dataclass fields.

import ast
import operator
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer
from fairseq.optim.adam import FairseqAdam
from omegaconf import II
from torch import Tensor

Tensors = list[Tensor]
ParamGroup = dict[str, Any]
"""One of torch's parameter groups, with its settings."""
HALF = (torch.float16, torch.bfloat16)
MOMENTS = ("exp_avg", "exp_avg_sq")


class Chunk(NamedTuple):
    """Parameters of one group, device and type that had as many updates: their states, and the places of gradients."""

    group: ParamGroup
    params: Tensors
    states: list[dict[str, Any]]
    places: list[int]


class MomentOptimizer(torch.optim.Optimizer):
    """Keeps running means of the gradient and of its square, under Adam's names; a subclass defines the step.

    The state is in float32 for parameters in half precision, else in their type.

    Args:
        params: parameters or torch's parameter groups.
        lr: learning rate.
        betas: decay rates of the two means.
        eps: keeps the square root of the second one away from zero.
        weight_decay: decoupled weight decay.
    """

    supports_memory_efficient_fp16 = True

    chunk = 2**24
    """Maximum of numbers that one call updates; it bounds the memory of the intermediate results."""
    chunk_on_cpu = 2**15
    """The same on a CPU: so many numbers stay in the cache from one operation to the next."""

    kept: Sequence[Tensor | None] | None = None
    """The gradients, if they stay the same tensors: reading them from thousands of parameters takes a host long."""

    _arranged: Sequence[Chunk] = ()
    _parts_then: Sequence[Any] = ()

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def _move(self, weights: Tensors, first: Tensors, second: Tensors, t: int, group: ParamGroup) -> None:
        """Move ``weights`` in place in update ``t``, from 1, by their two moments, which must not change."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Update every parameter that has a gradient once; returns the result of ``closure``."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        grads = self.gradients()
        # To arrange thousands of tensors takes a host longer than to find that none was replaced.
        if not same(self._parts(grads), self._parts_then) or any(
            len({state["step"] for state in chunk.states}) > 1 for chunk in self._arranged
        ):
            self._arranged = list(self._arrange(grads))
            self._parts_then = self._parts(grads)
        for chunk in self._arranged:
            self._update(chunk, [grads[place] for place in chunk.places])  # type: ignore[misc]
        return loss

    def gradients(self) -> Sequence[Tensor | None]:
        """Return the gradient of each parameter, or None, in the order of the groups."""
        return self.kept or [p.grad for group in self.param_groups for p in group["params"]]

    def _parts(self, grads: Sequence[Tensor | None]) -> list[Any]:
        """Return all that the arrangement depends on, besides the number of updates."""
        params = [p for group in self.param_groups for p in group["params"]]
        kinds = [kind for chunk in self._arranged for kind in (chunk.params[0].dtype, chunk.params[0].get_device())]
        return [*self.param_groups, *params, *(grad is None for grad in grads), *self.state.values(), *kinds]

    def _arrange(self, grads: Sequence[Tensor | None]) -> Iterator[Chunk]:
        """Yield the parameters that have a gradient, as updates take them."""
        places = {p: place for place, p in enumerate(p for group in self.param_groups for p in group["params"])}
        for group in self.param_groups:
            alike: dict[Any, Tensors] = defaultdict(list)
            for p in group["params"]:
                if grads[places[p]] is not None:
                    alike[self._prepare(p), p.device, p.dtype].append(p)
            for (_, device, _), params in alike.items():
                for chunk in chunks(params, self.chunk_on_cpu if device.type == "cpu" else self.chunk):
                    yield Chunk(group, chunk, [self.state[p] for p in chunk], [places[p] for p in chunk])

    def _prepare(self, p: Tensor) -> int:
        """Create the state of ``p`` or move it to its device; returns the number of its updates so far."""
        state = self.state[p]
        dtype = torch.float32 if p.dtype in HALF else p.dtype
        if not state:
            state["step"] = 0
            for name in MOMENTS:
                state[name] = torch.zeros_like(p, dtype=dtype)
        for name in MOMENTS:  # fairseq restores a checkpoint's state on the CPU
            state[name] = state[name].to(device=p.device, dtype=dtype)
        return int(state["step"])

    def _update(self, chunk: Chunk, grads: Tensors) -> None:
        """Apply the next update to a chunk."""
        group, params, states, _ = chunk
        first, second = ([state[name] for state in states] for name in MOMENTS)
        t = int(states[0]["step"]) + 1
        for state in states:
            state["step"] = t
        half = params[0].dtype in HALF
        if half:  # a gradient has the type of its parameter
            grads = [grad.float() for grad in grads]
        weights = [p.float() for p in params] if half else params
        self._apply(weights, grads, first, second, t, group)
        if half:
            torch._foreach_copy_(params, weights)

    def _apply(
        self, weights: Tensors, grads: Tensors, first: Tensors, second: Tensors, t: int, group: ParamGroup
    ) -> None:
        """Update the moments, then the weights, in place; all are in float32 or wider."""
        beta1, beta2 = group["betas"]
        torch._foreach_mul_(first, beta1)
        torch._foreach_add_(first, grads, alpha=1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, grads, grads, value=1 - beta2)
        self._move(weights, first, second, t, group)


def same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Return whether two lists hold the same objects."""
    return len(first) == len(second) and all(map(operator.is_, first, second))


def chunks(params: Tensors, most: int) -> Iterator[Tensors]:
    """Yield runs of ``params`` of at most ``most`` numbers, or of a single larger one."""
    chunk: Tensors = []
    size = 0
    for p in params:
        if chunk and size + p.numel() > most:
            yield chunk
            chunk, size = [], 0
        chunk.append(p)
        size += p.numel()
    if chunk:
        yield chunk


@dataclass
class MomentConfig(FairseqDataclass):
    """Flags of optimizers with Adam's moments, under fairseq's names."""

    adam_betas: Any = field(
        default="(0.9, 0.999)", metadata={"help": "decay rates of the two moments, as '(0.9, 0.98)'"}
    )
    adam_eps: float = field(
        default=1e-8, metadata={"help": "added to the square root of the second moment, before its bias is corrected"}
    )
    weight_decay: float = field(default=0.0, metadata={"help": "decoupled weight decay: p -= lr * weight_decay * p"})
    lr: list[float] = II("optimization.lr")


def moment_settings(cfg: Any, prefix: str) -> dict[str, Any]:
    """Return the settings of a :class:`MomentOptimizer` from fairseq's ``cfg``.

    Args:
        cfg: has ``PREFIX_betas``, text or a YAML list, ``PREFIX_eps``, ``weight_decay`` and ``lr``, one rate or one for
            each epoch. Their ranges have been checked with those of fairseq's own settings.
        prefix: of its flags.
    """
    betas = getattr(cfg, f"{prefix}_betas")
    first, second = map(float, ast.literal_eval(betas) if isinstance(betas, str) else betas)
    rate = next(iter(cfg.lr)) if isinstance(cfg.lr, Collection) else cfg.lr
    eps = getattr(cfg, f"{prefix}_eps")
    return {"lr": float(rate), "betas": (first, second), "eps": eps, "weight_decay": cfg.weight_decay}


class FairseqMoments(FairseqOptimizer):
    """Base of fairseq's side of a :class:`MomentOptimizer`, ``kind``; for ``prefix`` see :func:`moment_settings`."""

    kind: type[MomentOptimizer]
    prefix = "adam"
    average_params = FairseqAdam.average_params  # the state has Adam's names

    def __init__(self, cfg: Any, params: Iterable[Any]) -> None:
        super().__init__(cfg)
        self._optimizer = self.kind(params, **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """Return the settings of the torch optimizer."""
        return moment_settings(self.cfg, self.prefix)
