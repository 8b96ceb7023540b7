"""Statistics at residual connections and norms during one update, as sums that can be added up.

Every statistic is a sum of squares and a count, so that mini-batches, the steps of ``--update-freq`` and processes give
the numbers of one large batch. Only scalars are kept, and they stay on their device until the update is over.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.core.history import mixing_weights
from fairseq_plugins.core.norm import layer_norms
from fairseq_plugins.core.sub_layers import SubLayer, sub_layers

BRANCH, STREAM, NORM = "branch_rms", "stream_rms", "norm_output_rms"
BRANCH_GRADIENT = "branch_gradient_norm"


def norms(model: nn.Module) -> dict[str, nn.Module]:
    """Return every norm by the name of its sub-layer, or by its own path if it belongs to none."""
    named = {sub.name: sub.norm for sub in sub_layers(model) if sub.norm is not None}
    taken, paths = set(named.values()), {module: path for path, module in model.named_modules()}
    return {**named, **{paths[norm]: norm for norm in layer_norms(model) if norm not in taken}}


def residual_weights(sub: SubLayer, like: Tensor, width: int) -> Tensor:
    """Return the weights of branch, stream and layer input at a residual connection, ``(3, C)``.

    A residual connection is linear, so a weight is its output for a one in that input and zeros in the others.
    """
    ones = torch.eye(3, dtype=like.dtype, device=like.device).view(3, 3, 1, 1, 1).expand(3, 3, 1, 1, width)
    with torch.no_grad():
        return torch.stack([sub.residual.forward(*inputs).flatten() for inputs in ones])


def scales(connections: list[SubLayer]) -> dict[str, float]:
    """Return means of the weights of branch and stream, at residual connections with parameters or buffers.

    Where the branch has a weight for each dimension, there is the mean of their sizes, too: they may differ in sign.
    """
    names, means = [], []
    for sub in connections:
        if own := [*sub.residual.parameters(), *sub.residual.buffers()]:
            weights = residual_weights(sub, own[0], max(tensor.numel() for tensor in own))
            names += [f"{sub.name}/branch_scale", f"{sub.name}/stream_scale"]
            means.append(weights[:2].mean(dim=1))
            gate = sub.residual.branch_scale()
            if gate is not None and gate.numel() > 1:
                names.append(f"{sub.name}/branch_size")
                means.append(weights[:1].abs().mean(dim=1))
    # Read at once: a GPU is waited for once.
    return dict(zip(names, torch.cat(means).tolist() if means else [], strict=True))


def history_weights(model: nn.Module) -> dict[str, float]:
    """Return the trained weight of state k in the input of layer l, ``encoder.history.l.k/history_weight``.

    State 0 is the embedding, state k the output of layer k - 1; layers count from 0, and one more is the output of the
    stack. Means over the width.
    """
    values: dict[str, float] = {}
    for name, stack in getattr(model, "stacks", list)():
        if next(stack.history.parameters(), None) is not None:
            for row, weights in enumerate(mixing_weights(stack).tolist()):
                for state, weight in enumerate(weights[: row + 1]):
                    values[f"{name}.history.{row}.{state}/history_weight"] = weight
    return values


@contextlib.contextmanager
def hooked(hooks: Iterable[tuple[nn.Module, Any]]) -> Iterator[None]:
    """Inside the context, call hooks ``(module, inputs, output)``; a hook's result replaces the output."""
    with contextlib.ExitStack() as handles:
        for module, hook in hooks:
            handles.callback(module.register_forward_hook(hook).remove)
        yield


class ActivationWatch:
    """Hooks for one update, and the sums that they see by name; names and order are the same in every process.

    Args:
        model: the model.
        connections: its sub-layers.
        named_norms: its :func:`norms`.
        empty: whether each mini-batch of the update is only a dummy, because this process has no more.
    """

    def __init__(
        self, model: nn.Module, connections: list[SubLayer], named_norms: dict[str, nn.Module], empty: list[bool]
    ) -> None:
        self._model, self._sub_layers, self._named_norms, self._empty = model, connections, named_norms, empty
        self._forward = False
        self._passes = 0
        names = [f"{sub.name}/{what}" for sub in connections for what in (BRANCH, STREAM, BRANCH_GRADIENT)]
        names += [f"{name}/{NORM}" for name in named_norms]
        self._norms: dict[str, list[Tensor]] = {name: [] for name in names}
        self._counts = dict.fromkeys(names, 0)
        self._losses: list[Tensor] = []
        self._sample_size = 0.0

    def vector(self, device: torch.device) -> Tensor:
        """Return the sums of this process in float64: loss and sample size, sums of squares, counts of elements."""
        zero = torch.zeros((), dtype=torch.float64, device=device)
        squares = [torch.stack(norms).double().square().sum() if norms else zero for norms in self._norms.values()]
        totals = [torch.stack([zero, *self._losses]).sum(), zero + self._sample_size]
        counts = torch.tensor(list(self._counts.values()), dtype=torch.float64, device=device)
        return torch.cat([torch.stack([*totals, *squares]), counts])

    def read(self, sums: list[float]) -> Iterator[tuple[str, float, float]]:
        """Yield name, sum of squares and count of each observed tensor, from the end of :meth:`vector` as a list."""
        half = len(self._norms)
        for name, squares, count in zip(self._norms, sums[:half], sums[half:], strict=True):
            if count > 0:
                yield name, squares, count

    def hooked(self) -> contextlib.AbstractContextManager[None]:
        """Watch the passes inside the context."""
        residuals = [(sub.residual, partial(self._see_residual, sub.name)) for sub in self._sub_layers]
        of_norms = [(norm, partial(self._see_norm, f"{name}/{NORM}")) for name, norm in self._named_norms.items()]
        return hooked([*residuals, *of_norms])

    def run(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run the criterion on a mini-batch; returns its loss, a sum, the number of units, and its other results.

        Outside of it, activation checkpointing runs layers again, for the backward pass.
        """
        counts = not (self._passes < len(self._empty) and self._empty[self._passes])
        self._forward = counts
        try:
            result = forward(*args, **kwargs)
        finally:
            self._forward = False
        if counts:
            self._losses.append(result[0].detach().sum().double())
            self._sample_size += float(result[1])
        self._passes += 1
        return result

    def _add(self, name: str, x: Tensor) -> None:
        self._norms[name].append(torch.linalg.vector_norm(x.detach(), dtype=torch.float32))
        self._counts[name] += x.numel()

    def _add_forward(self, name: str, x: Tensor) -> None:
        """Add a tensor of a pass that counts; the calibration of a method on its first batch does not."""
        if self._forward and getattr(self._model, "data_seen", True):
            self._add(name, x)

    def _see_residual(self, name: str, module: nn.Module, inputs: Any, total: Tensor) -> None:
        branch, stream, _ = inputs
        self._add_forward(f"{name}/{BRANCH}", branch)
        self._add_forward(f"{name}/{STREAM}", stream)
        if branch.requires_grad:
            branch.register_hook(partial(self._add, f"{name}/{BRANCH_GRADIENT}"))

    def _see_norm(self, name: str, module: nn.Module, inputs: Any, output: Tensor) -> None:
        self._add_forward(name, output)
