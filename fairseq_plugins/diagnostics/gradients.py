"""Gradient norms: of every layer's and sub-layer's output, at the points around each norm, and of the parameters.

Liu et al., EMNLP 2020, figure 3 (sub-layer outputs); Takase et al., Findings of ACL 2023, figures 3, 4 and 7 (layer
outputs, points inside a layer); Zhang et al., EMNLP 2019, figure 1 (layers). The gradient of a tensor counts every path
from it to the loss, and norms are Frobenius norms over the whole tensor.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_plugins.diagnostics.batches import Batch
from fairseq_plugins.diagnostics.observation import Recording, Visit, recording

LABEL_SMOOTHING = 0.1
POINTS = ("stream", "norm_input", "norm_output", "branch", "total", "output")
"""Tensors of a sub-layer, by their names in :class:`~fairseq_plugins.diagnostics.observation.Visit`."""


class Point(NamedTuple):
    """The gradient norm of one tensor; of a whole layer where ``site`` is ``layer``."""

    stack: str
    depth: int
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


class Norms:
    """Gradient norms of tensors, filled while the backward pass runs. The same tensor is watched once."""

    def __init__(self) -> None:
        self._found: dict[int, float] = {}
        self._kept: list[Tensor] = []

    def watch(self, tensor: Optional[Tensor]) -> None:
        """Note the gradient norm of ``tensor`` once it is known."""
        if tensor is None or not tensor.requires_grad or id(tensor) in self._found:
            return
        self._found[id(tensor)] = 0.0
        self._kept.append(tensor)  # an id belongs to a tensor only while the tensor lives
        tensor.register_hook(lambda gradient: self._found.__setitem__(id(tensor), float(gradient.norm())))

    def of(self, tensor: Optional[Tensor]) -> Optional[float]:
        """The norm; None for what was not watched, 0 where no gradient has come."""
        return None if tensor is None else self._found.get(id(tensor))


def watched_backward(model: Any, batch: Batch) -> tuple[Recording, Norms]:
    """One pass in training mode, with the model's dropout, and its gradients."""
    model.train()
    model.zero_grad()
    norms = Norms()
    with recording(model) as record:
        loss = loss_of(model, batch)
    for visit in record.visits:
        for point in POINTS:
            norms.watch(getattr(visit, point))
    for output in record.layer_outputs.values():
        norms.watch(output)
    loss.backward()
    model.eval()
    return record, norms


def gradient_norms(model: Any, batch: Batch) -> list[Point]:
    """Every point of the model, the encoder's first, from the bottom up.

    A layer has one row more with the point ``output`` and one with ``parameters``, over all that it trains.
    """
    record, norms = watched_backward(model, batch)
    points: list[Point] = []
    for visit in record.visits:
        points += _points(visit, norms)
    for name, stack in model.stacks():
        for depth, layer in enumerate(stack.layers, start=1):
            output = norms.of(record.layer_outputs[name, depth])
            points.append(Point(name, depth, "layer", "output", output or 0.0))
            points.append(Point(name, depth, "layer", "parameters", parameter_norm(layer)))
    return points


def _points(visit: Visit, norms: Norms) -> list[Point]:
    sub = visit.sub
    found = ((point, norms.of(getattr(visit, point))) for point in POINTS)
    return [Point(sub.stack, sub.depth, sub.site.value, point, norm) for point, norm in found if norm is not None]


def parameter_norm(layer: torch.nn.Module) -> float:
    """Norm of the gradients of all parameters of ``layer`` together."""
    squares = [float(p.grad.norm()) ** 2 for p in layer.parameters() if p.grad is not None]
    return sum(squares) ** 0.5


def layer_outputs(points: list[Point], stack: str) -> list[float]:
    """Norms at the outputs of the layers of ``stack``, bottom to top."""
    return [p.norm for p in points if p.stack == stack and p.site == "layer" and p.point == "output"]
