"""What the forward and backward pass of one update show at junctions and norms, as sums that add up.

Every statistic is a sum of squares and a count, so that mini-batches, the steps of ``--update-freq`` and processes give
the numbers of one large batch. Nothing but scalars is kept, and they stay on their device until the update is over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_plugins.core.history import mixing_weights
from fairseq_plugins.core.layers import NORM_OF
from fairseq_plugins.core.method import Site
from fairseq_plugins.core.norm import layer_norms
from fairseq_plugins.core.residual import Residual

JUNCTION = "_residual"
BRANCH, STREAM, NORM = "branch_rms", "stream_rms", "norm_output_rms"
BRANCH_GRADIENT = "branch_gradient_norm"


class Junction(NamedTuple):
    """A junction with the name of its sub-layer, e.g. ``encoder.layers.0.ffn``, and what stands at its norm place."""

    name: str
    module: Residual
    norm: nn.Module | None


def junctions(model: nn.Module) -> list[Junction]:
    """Every junction of ``model``; by name, since iterating over layers would let LayerDrop skip some of them."""
    found = []
    for path, module in model.named_modules():
        if isinstance(module, Residual) and path.endswith(JUNCTION):
            name = path.removesuffix(JUNCTION)
            layer, _, site = name.rpartition(".")
            found.append(Junction(name, module, getattr(model.get_submodule(layer), NORM_OF[Site(site)], None)))
    return found


def norms(model: nn.Module) -> dict[str, nn.Module]:
    """Every norm by the name of its sub-layer, or by its own path where it belongs to none."""
    named = {one.name: one.norm for one in junctions(model) if one.norm is not None}
    taken, paths = set(named.values()), {module: path for path, module in model.named_modules()}
    return {**named, **{paths[norm]: norm for norm in layer_norms(model) if norm not in taken}}


def scales(found: list[Junction]) -> dict[str, float]:
    """Weights that junctions with a parameter or a buffer give branch and stream; means over the width.

    A junction is linear, so they are what it makes of a one in the place of each and zeros in the others.
    """
    values: dict[str, float] = {}
    for name, junction, _ in found:
        own = [*junction.parameters(), *junction.buffers()]
        if not own:
            continue
        width = max(one.numel() for one in own)
        one, zero = own[0].new_ones(1, 1, width), own[0].new_zeros(1, 1, width)
        with torch.no_grad():
            values[f"{name}/branch_scale"] = float(junction.forward(one, zero, zero).mean())
            values[f"{name}/stream_scale"] = float(junction.forward(zero, one, zero).mean())
    return values


def history_weights(model: nn.Module) -> dict[str, float]:
    """Weight of state k in the input of layer l, ``encoder.history.l.k/history_weight``, where they can be trained.

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
    """Sums of squares and counts by name; the names and their order are fixed, so that processes can be added up."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._norms: dict[str, list[Tensor]] = {name: [] for name in names}
        self._counts = dict.fromkeys(names, 0)

    def add(self, name: str, x: Tensor) -> None:
        """Add the elements of ``x``."""
        self._norms[name].append(torch.linalg.vector_norm(x.detach(), dtype=torch.float32))
        self._counts[name] += x.numel()

    def vector(self, device: torch.device) -> Tensor:
        """Sums of squares, then counts, in float64; ``(2 * names)``."""
        zero = torch.zeros((), dtype=torch.float64, device=device)
        squares = [torch.stack(one).double().square().sum() if one else zero for one in self._norms.values()]
        counts = torch.tensor(list(self._counts.values()), dtype=torch.float64, device=device)
        return torch.cat([torch.stack([zero, *squares])[1:], counts])

    def read(self, vector: list[float]) -> dict[str, tuple[float, float]]:
        """Sum of squares and count of every name that has been seen, from :meth:`vector` as a list."""
        half = len(self.names)
        pairs = zip(self.names, vector[:half], vector[half:], strict=True)
        return {name: (squares, count) for name, squares, count in pairs if count > 0}


class ActivationWatch:
    """Hooks for one update.

    Args:
        model: the model.
        found: its :func:`junctions`.
        named_norms: its :func:`norms`.
        empty: for each mini-batch of the update whether it only stands in for one that this process has not.
    """

    def __init__(
        self, model: nn.Module, found: list[Junction], named_norms: dict[str, nn.Module], empty: list[bool]
    ) -> None:
        self._model, self._junctions, self._norms, self._empty = model, found, named_norms, empty
        self._forward = False
        self._passes = 0
        names = [f"{one.name}/{what}" for one in found for what in (BRANCH, STREAM, BRANCH_GRADIENT)]
        self.sums = Sums(names + [f"{name}/{NORM}" for name in named_norms])
        self.losses: list[Tensor] = []
        self.sample_sizes: list[float] = []

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Watch what runs inside the context."""
        handles: list[Any] = []
        try:
            for one in self._junctions:
                handles.append(one.module.register_forward_hook(self._junction_hook(one.name)))
            for name, norm in self._norms.items():
                handles.append(norm.register_forward_hook(self._norm_hook(f"{name}/{NORM}")))
            yield
        finally:
            for handle in handles:
                handle.remove()

    @contextlib.contextmanager
    def forward_pass(self) -> Iterator[None]:
        """Mark a forward pass. Outside of one, activation checkpointing runs layers again, for the backward pass."""
        self._forward = True
        try:
            yield
        finally:
            self._forward = False

    def saw(self, loss: Tensor, sample_size: Any) -> None:
        """Add the loss of a mini-batch, summed over what ``sample_size`` counts."""
        if self._counts:
            self.losses.append(loss.detach().sum().double())
            self.sample_sizes.append(float(sample_size))
        self._passes += 1

    @property
    def _counts(self) -> bool:
        return self._passes >= len(self._empty) or not self._empty[self._passes]

    @property
    def _seen(self) -> bool:
        """Whether this is a forward pass to be counted; not the one in which a method looks at its first batch."""
        return self._forward and self._counts and getattr(self._model, "data_seen", True)

    def _junction_hook(self, name: str) -> Any:
        def see(module: nn.Module, inputs: Any, total: Tensor) -> None:
            branch, stream, _ = inputs
            if self._seen:
                self.sums.add(f"{name}/{BRANCH}", branch)
                self.sums.add(f"{name}/{STREAM}", stream)
            if branch.requires_grad:
                branch.register_hook(lambda gradient: self.sums.add(f"{name}/{BRANCH_GRADIENT}", gradient))

        return see

    def _norm_hook(self, key: str) -> Any:
        def see(module: nn.Module, inputs: Any, output: Tensor) -> None:
            if self._seen:
                self.sums.add(key, output)

        return see
