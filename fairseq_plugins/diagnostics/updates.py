"""Gradients and updates of each kind of matrix: Liu et al., EMNLP 2020, figures 5 and 11.

For every matrix of the layers the norm of its gradient at a checkpoint, and the norm of what training has changed until
a later one, both relative to the largest of the model: unbalanced gradients need not make unbalanced updates, since
Adam divides by their size. Norms are Frobenius norms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import Tensor

from fairseq_plugins.diagnostics.batches import Batch
from fairseq_plugins.diagnostics.gradients import loss_of
from fairseq_plugins.diagnostics.models import Subject
from fairseq_plugins.errors import UserError


class Matrix(NamedTuple):
    """One matrix. The update's entries are None where there is no later checkpoint.

    Attributes:
        stack: ``encoder`` or ``decoder``.
        layer: number of its layer, from 0.
        kind: its name in the layer, for instance ``self_attn.q_proj``.
        gradient: norm.
        relative_gradient: by the largest of the model.
        update: norm.
        relative_update: by the largest of the model.
        update_to_weight: norm of the update by that of the matrix before.
    """

    stack: str
    layer: int
    kind: str
    gradient: float
    relative_gradient: float
    update: float | None
    relative_update: float | None
    update_to_weight: float | None


def matrices(model: Any) -> Iterator[tuple[str, int, str, Tensor]]:
    """Stack, layer, kind and weight of every matrix in the layers."""
    for name, stack in model.stacks():
        for number, layer in enumerate(stack.layers):
            for kind, parameter in layer.named_parameters():
                if parameter.dim() == 2:
                    yield name, number, kind.removesuffix(".weight"), parameter


def updates(model: Any, batch: Batch, later: Any | None = None) -> list[Matrix]:
    """Every matrix of ``model``, its gradient without dropout, and its way to the weights of ``later``.

    Raises:
        UserError: the two models have not the same matrices.
    """
    model.eval()
    model.zero_grad()
    loss_of(model, batch).backward()
    found = list(matrices(model))
    gradients = [0.0 if p.grad is None else float(p.grad.norm()) for *_, p in found]
    moved = [None] * len(found) if later is None else _distances(found, model, later)
    largest, farthest = max(gradients), max((m for m in moved if m is not None), default=0.0)
    return [
        Matrix(
            stack,
            layer,
            kind,
            gradient,
            _share(gradient, largest) or 0.0,
            move,
            _share(move, farthest),
            _share(move, float(p.detach().norm())),
        )
        for (stack, layer, kind, p), gradient, move in zip(found, gradients, moved, strict=True)
    ]


def _shapes(model: Any) -> dict[str, Any]:
    return {name: value.shape for name, value in model.state_dict().items()}


def _distances(found: list[tuple[str, int, str, Tensor]], model: Any, later: Any) -> list[float | None]:
    others = list(matrices(later))
    if _shapes(model) != _shapes(later):
        raise UserError("updates: the two checkpoints are of different models, so no matrix has moved between them")
    return [float((new.detach() - old.detach()).norm()) for (*_, old), (*_, new) in zip(found, others, strict=True)]


def _share(value: float | None, of: float) -> float | None:
    return None if value is None or not of else value / of


def pairs(subjects: list[Subject]) -> list[tuple[Subject, Subject | None]]:
    """Each checkpoint with the next one, by updates; a method, or a checkpoint alone, without."""
    trained = sorted((s for s in subjects if s.weights is not None), key=lambda s: s.updates or 0)
    alone: list[tuple[Subject, Subject | None]] = [(s, None) for s in subjects if s.weights is None]
    if len(trained) == 1:
        return [*alone, (trained[0], None)]
    return [*alone, *zip(trained, trained[1:], strict=False)]
