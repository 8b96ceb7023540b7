"""Gradients and updates of each kind of matrix: Liu et al., EMNLP 2020, figures 5 and 11.

For every matrix of the layers the norm of its gradient at a checkpoint, and the norm of its change until a later one,
both relative to the largest of the model: unbalanced gradients need not cause unbalanced updates, since Adam divides by
their size. Norms are Frobenius norms.
"""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.observe.diagnostics import results
from fairseq_plugins.tools.observe.diagnostics.batches import Batch
from fairseq_plugins.tools.observe.diagnostics.gradients import loss_of
from fairseq_plugins.tools.observe.diagnostics.models import Subject
from fairseq_plugins.tools.observe.diagnostics.results import Analysis, AnalysisResult, AnalysisSettings
from fairseq_plugins.tools.plots import Figure, Lines, Panel


class Matrix(NamedTuple):
    """One matrix: layer, from 0; name in the layer, such as ``self_attn.q_proj``; norms of its gradient and its update.

    Relative norms are divided by the largest of the model; ``update_to_weight`` by the norm of the matrix before. The
    update's entries are None without a later checkpoint.
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
    """Yield stack, layer, kind and weight of every matrix in the layers."""
    for name, stack in model.stacks():
        for number, layer in enumerate(stack.layers.children()):
            for kind, parameter in layer.named_parameters():
                if parameter.dim() == 2:
                    yield name, number, kind.removesuffix(".weight"), parameter


def updates(model: Any, batch: Batch, later: Any | None = None) -> list[Matrix]:
    """Measure every matrix of ``model``: its gradient without dropout, and its distance to the weights of ``later``.

    Raises UserError: the two models do not have the same matrices.
    """
    model.eval()
    model.zero_grad()
    loss_of(model, batch).backward()
    weights = list(matrices(model))
    gradients = [0.0 if p.grad is None else float(p.grad.norm()) for *_, p in weights]
    moved: list[float | None] = [None] * len(weights)
    if later is not None:
        before, after = ({name: value.shape for name, value in m.state_dict().items()} for m in (model, later))
        if before != after:
            raise UserError("updates: the two checkpoints are of different models, whose matrices cannot be compared")
        moved = [
            float((new.detach() - old.detach()).norm())
            for (*_, old), (*_, new) in zip(weights, matrices(later), strict=True)
        ]
    largest, farthest = max(gradients), max((m for m in moved if m is not None), default=0.0)
    rows = []
    for (stack, layer, kind, p), gradient, move in zip(weights, gradients, moved, strict=True):
        of_weight = results.ratio(move, float(p.detach().norm()))
        relative = results.ratio(gradient, largest) or 0.0
        rows.append(Matrix(stack, layer, kind, gradient, relative, move, results.ratio(move, farthest), of_weight))
    return rows


def pairs(subjects: Sequence[Subject]) -> list[tuple[Subject, Subject | None]]:
    """Return each checkpoint with the next one, by updates; a method, or a single checkpoint, with None."""
    trained = sorted((s for s in subjects if s.weights is not None), key=lambda s: s.updates or 0)
    following: list[tuple[Subject, Subject | None]] = [*zip(trained, trained[1:], strict=False)]
    return [*((s, None) for s in subjects if s.weights is None), *(following or [(s, None) for s in trained])]


def run_updates(subjects: Sequence[Subject], settings: AnalysisSettings) -> AnalysisResult:
    """Measure the matrices of each checkpoint and their change until the next."""
    by_label: dict[str, list[Matrix]] = {}
    for subject, later in pairs(subjects):
        label = subject.label if later is None else f"{subject.label} to {later.label}"
        results.progress(label)
        batch = settings.batch(subject)
        other = None if later is None else later.build()
        by_label[label] = updates(subject.ready(batch, settings.seed), batch, other)
    names = list(dict.fromkeys(f"{m.stack} {m.kind}" for measured in by_label.values() for m in measured))
    panels: list[Panel] = []
    for column, title in (("relative_gradient", "gradient"), ("relative_update", "update")):
        medians = {label: [_median(ms, name, column) for name in names] for label, ms in by_label.items()}
        lines = [line for label, values in medians.items() if (line := results.numbered(label, values)).points]
        if lines:
            panels.append(Lines(title, "", "norm / the model's largest", lines, log_y=True, x_ticks=names))
    header = ("model", "matrix", "gradient", "update", "update / weight")
    columns = ("relative_gradient", "relative_update", "update_to_weight")
    rows: list[Sequence[Any]] = []
    for label, measured in by_label.items():
        for name in names:
            row = [_median(measured, name, column) for column in columns]
            if row[0] is not None:
                rows.append((label, name, *row))
    title = "Gradient and update of each kind of matrix, median over the layers"
    figure = Figure("", title, panels, columns=1, width=8.0)
    note = "no updates: these need two checkpoints of a training (--checkpoint EARLIER LATER)"
    notes = [] if any(later is not None for _, later in pairs(subjects)) else [note]
    return AnalysisResult({"": results.of_records(by_label)}, [figure], header, rows, notes)


def _median(measured: Sequence[Matrix], name: str, column: str) -> float | None:
    own = [getattr(m, column) for m in measured if f"{m.stack} {m.kind}" == name]
    values = [value for value in own if value is not None]
    return statistics.median(values) if values else None


ANALYSIS = Analysis(
    "updates",
    "relative gradient and update of each kind of matrix, from two checkpoints",
    "Admin Fig. 5, 11",
    run_updates,
)
