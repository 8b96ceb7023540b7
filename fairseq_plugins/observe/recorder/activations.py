"""Statistics at residual connections and norms during one update, as sums that can be added up.

Every statistic is a sum of squares and a count, so that mini-batches, the steps of ``--update-freq`` and processes give
the numbers of one large batch. Only scalars are kept, and they stay on their device until the update is over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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
    """Return means of the weights of branch and stream, at residual connections with parameters or buffers."""
    values: dict[str, float] = {}
    for sub in connections:
        if own := [*sub.residual.parameters(), *sub.residual.buffers()]:
            weights = residual_weights(sub, own[0], max(tensor.numel() for tensor in own))
            values[f"{sub.name}/branch_scale"], values[f"{sub.name}/stream_scale"] = weights[:2].mean(dim=1).tolist()
    return values


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


class Sums:
    """Sums of squares and counts by name; names and order are fixed, so that processes can be added up."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._norms: dict[str, list[Tensor]] = {name: [] for name in names}
        self._counts = dict.fromkeys(names, 0)

    def add(self, name: str, x: Tensor) -> None:
        """Add the elements of ``x``."""
        self._norms[name].append(torch.linalg.vector_norm(x.detach(), dtype=torch.float32))
        self._counts[name] += x.numel()

    def vector(self, device: torch.device) -> Tensor:
        """Return sums of squares, then counts, in float64; ``(2 * names)``."""
        zero = torch.zeros((), dtype=torch.float64, device=device)
        squares = [torch.stack(norms).double().square().sum() if norms else zero for norms in self._norms.values()]
        counts = torch.tensor(list(self._counts.values()), dtype=torch.float64, device=device)
        return torch.cat([torch.stack([zero, *squares])[1:], counts])

    def read(self, vector: list[float]) -> dict[str, tuple[float, float]]:
        """Return sum of squares and count of every name that has been seen, from :meth:`vector` as a list."""
        half = len(self.names)
        pairs = zip(self.names, vector[:half], vector[half:], strict=True)
        return {name: (squares, count) for name, squares, count in pairs if count > 0}


class ActivationWatch:
    """Hooks for one update.

    Args:
        model: the model.
        connections: its sub-layers.
        named_norms: its :func:`norms`.
        empty: for each mini-batch of the update whether it is only a dummy, because this process has no more.
    """

    def __init__(
        self, model: nn.Module, connections: list[SubLayer], named_norms: dict[str, nn.Module], empty: list[bool]
    ) -> None:
        self._model, self._sub_layers, self._norms, self._empty = model, connections, named_norms, empty
        self._forward = False
        self._passes = 0
        names = [f"{sub.name}/{what}" for sub in connections for what in (BRANCH, STREAM, BRANCH_GRADIENT)]
        self.sums = Sums(names + [f"{name}/{NORM}" for name in named_norms])
        self.losses: list[Tensor] = []
        self.sample_sizes: list[float] = []

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Watch the passes inside the context."""
        with contextlib.ExitStack() as handles:
            for sub in self._sub_layers:
                handles.callback(sub.residual.register_forward_hook(self._residual_hook(sub.name)).remove)
            for name, norm in self._norms.items():
                handles.callback(norm.register_forward_hook(self._norm_hook(f"{name}/{NORM}")).remove)
            yield

    @contextlib.contextmanager
    def forward_pass(self) -> Iterator[None]:
        """Mark a forward pass. Outside of one, activation checkpointing runs layers again, for the backward pass."""
        self._forward = True
        try:
            yield
        finally:
            self._forward = False

    def saw(self, loss: Tensor, sample_size: Any) -> None:
        """Add the loss of a mini-batch, a sum over ``sample_size`` units."""
        if not self._dummy():
            self.losses.append(loss.detach().sum().double())
            self.sample_sizes.append(float(sample_size))
        self._passes += 1

    def _dummy(self) -> bool:
        return self._passes < len(self._empty) and self._empty[self._passes]

    def _seen(self) -> bool:
        """Return whether this forward pass counts; the calibration of a method on its first batch does not."""
        return self._forward and not self._dummy() and getattr(self._model, "data_seen", True)

    def _residual_hook(self, name: str) -> Any:
        def see(module: nn.Module, inputs: Any, total: Tensor) -> None:
            branch, stream, _ = inputs
            if self._seen():
                self.sums.add(f"{name}/{BRANCH}", branch)
                self.sums.add(f"{name}/{STREAM}", stream)
            if branch.requires_grad:
                branch.register_hook(lambda gradient: self.sums.add(f"{name}/{BRANCH_GRADIENT}", gradient))

        return see

    def _norm_hook(self, key: str) -> Any:
        def see(module: nn.Module, inputs: Any, output: Tensor) -> None:
            if self._seen():
                self.sums.add(key, output)

        return see
