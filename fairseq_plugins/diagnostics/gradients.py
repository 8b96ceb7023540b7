"""Gradient norms: of every layer's and sub-layer's output, at the points around each norm, and of the parameters.

Liu et al., EMNLP 2020, figure 3 (sub-layer outputs); Takase et al., Findings of ACL 2023, figures 3, 4 and 7 (layer
outputs, points inside a layer); Zhang et al., EMNLP 2019, figure 1 (layers). The gradient of a tensor counts every path
from it to the loss, and norms are Frobenius norms over the whole tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_plugins.core.sub_layers import sub_layers
from fairseq_plugins.diagnostics.batches import Batch
from fairseq_plugins.diagnostics.observation import recording

LABEL_SMOOTHING = 0.1
LAYER = "layer"
TOKENS_AT_ONCE = 500
"""Source tokens of one pass: 18 layers of base size on either side then take about 2 GB."""
POINTS = ("stream", "norm_input", "norm_output", "branch", "total", "output")
"""Tensors of a sub-layer, by their names in :class:`~fairseq_plugins.diagnostics.observation.Visit`."""


class Point(NamedTuple):
    """The gradient norm of one tensor; of a whole layer where ``site`` is ``layer``. Layers count from 0."""

    stack: str
    layer: int
    site: str
    point: str
    norm: float


def loss_of(model: Any, batch: Batch) -> Tensor:
    """Label-smoothed cross-entropy of ``batch``, mean over its tokens, natural log."""
    sample = {"target": batch.target}
    log_probabilities = model.get_normalized_probs(model(*batch.inputs), log_probs=True, sample=sample)
    pad = model.decoder.padding_idx
    return smoothed(log_probabilities.flatten(0, 1), batch.target.flatten(), pad)


def smoothed(log_probabilities: Tensor, target: Tensor, pad: int) -> Tensor:
    """(1 - e) of the target's and e of the mean negative log probability over the words; ``(N, V)`` and ``(N)``."""
    chosen = log_probabilities.gather(1, target.unsqueeze(1)).squeeze(1)
    losses = -(1 - LABEL_SMOOTHING) * chosen - LABEL_SMOOTHING * log_probabilities.mean(dim=1)
    return losses[target.ne(pad)].mean()


Key = tuple[str, int, str, str]
"""Stack, layer, site (``layer`` for a whole one) and point."""


class Backward:
    """What backward passes have shown, added up over parts of a batch; scalars only, no tensor is kept.

    Sentences do not meet in a pass, so the squared norm over a batch is the sum of those over its parts.
    """

    def __init__(self) -> None:
        self._squares: dict[Key, float] = {}
        self._moments: dict[Key, Tensor] = {}

    def watch(self, key: Key, tensor: Tensor | None) -> None:
        """Add the gradient of ``tensor`` once it is known."""
        if tensor is not None and tensor.requires_grad:
            self._squares.setdefault(key, 0.0)
            tensor.register_hook(partial(self._add, key))

    def _add(self, key: Key, gradient: Tensor) -> None:
        self._squares[key] += float(gradient.norm()) ** 2

    def see(self, key: Key, tensor: Tensor) -> None:
        """Add the elements of ``tensor`` to the variance of ``key``."""
        values = tensor.detach().double()
        moments = torch.stack([values.sum(), values.square().sum(), values.new_tensor(values.numel())])
        self._moments[key] = self._moments.get(key, torch.zeros(3).double()) + moments

    def norm(self, key: Key) -> float | None:
        """Norm of the gradient; None for what was not watched, 0 where no gradient has come."""
        square = self._squares.get(key)
        return None if square is None else square**0.5

    def variance(self, key: Key) -> float:
        """Of all elements that were seen, around their one mean."""
        total, squares, count = self._moments[key].tolist()
        return squares / count - (total / count) ** 2


def parts_of(batch: Batch) -> Iterator[Batch]:
    """``batch`` in parts whose activations fit into a small machine's memory."""
    sentences = max(1, TOKENS_AT_ONCE // batch.source.size(1))
    for first in range(0, len(batch.source), sentences):
        yield Batch(*(tensor[first : first + sentences] for tensor in batch))


def watched_backward(model: Any, batch: Batch) -> Backward:
    """Passes in training mode, with the model's dropout; the gradients of the parameters stay in the model."""
    model.train()
    model.zero_grad()
    seen, pad = Backward(), model.decoder.padding_idx
    words = int(batch.target.ne(pad).sum())
    for part in parts_of(batch):
        with recording(model) as record:
            loss = loss_of(model, part) * (int(part.target.ne(pad).sum()) / words)
        for visit in record.visits:
            key = (visit.sub.stack, visit.sub.number, visit.sub.site.value)
            seen.see((*key, "total"), visit.total)
            for point in POINTS:
                seen.watch((*key, point), getattr(visit, point))
        for (stack, layer), output in record.layer_outputs.items():
            seen.watch((stack, layer, LAYER, "output"), output)
        loss.backward()
    model.eval()
    return seen


def gradient_norms(model: Any, batch: Batch) -> list[Point]:
    """Every point of the model, the encoder's first, from the bottom up.

    A layer has one row more with the point ``output`` and one with ``parameters``, over all that it trains.
    """
    seen = watched_backward(model, batch)
    points: list[Point] = []
    for sub in sub_layers(model):
        keys = [(sub.stack, sub.number, sub.site.value, point) for point in POINTS]
        points += [Point(*key, norm) for key in keys if (norm := seen.norm(key)) is not None]
    for name, stack in model.stacks():
        for number, layer in enumerate(stack.layers):
            points.append(Point(name, number, LAYER, "output", seen.norm((name, number, LAYER, "output")) or 0.0))
            points.append(Point(name, number, LAYER, "parameters", parameter_norm(layer)))
    return points


def parameter_norm(layer: torch.nn.Module) -> float:
    """Norm of the gradients of all parameters of ``layer`` together."""
    squares = [float(p.grad.norm()) ** 2 for p in layer.parameters() if p.grad is not None]
    return sum(squares) ** 0.5


def layer_outputs(points: list[Point], stack: str) -> list[float]:
    """Norms at the outputs of the layers of ``stack``, bottom to top."""
    return [p.norm for p in points if p.stack == stack and p.site == "layer" and p.point == "output"]
