"""Gradient norms: of every layer's and sub-layer's output, at the points around each norm, and of the parameters.

Liu et al., EMNLP 2020, figure 3 (sub-layer outputs); Takase et al., Findings of ACL 2023, figures 3, 4 and 7 (layer
outputs, points inside a layer); Zhang et al., EMNLP 2019, figure 1 (layers). The gradient of a tensor counts every path
from it to the loss, and norms are Frobenius norms over the whole tensor. The output of a layer is all that it hands on:
extra streams count, too.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, product
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fairseq_plugins.core.sub_layers import sub_layers
from fairseq_plugins.tools.observe.diagnostics import results
from fairseq_plugins.tools.observe.diagnostics.batches import Batch
from fairseq_plugins.tools.observe.diagnostics.models import Subject
from fairseq_plugins.tools.observe.diagnostics.observation import recording
from fairseq_plugins.tools.observe.diagnostics.results import STACKS, Analysis, AnalysisResult, AnalysisSettings
from fairseq_plugins.tools.plots import Figure, Line, Lines, Panel

LABEL_SMOOTHING = 0.1
LAYER = "layer"
TOKENS_AT_ONCE = 500
"""Tokens of the longer side per pass: 18 layers of base size on either side then need about 2 GB."""
POINTS = ("stream", "norm_input", "norm_output", "branch", "total", "output")
"""Tensors of a sub-layer, by their names in :class:`~fairseq_plugins.tools.observe.diagnostics.observation.Visit`."""


Key = tuple[str, int, str, str]
"""Stack, layer, site (``layer`` for a whole layer) and point."""


class Point(NamedTuple):
    """The gradient norm of one tensor; of a whole layer if ``site`` is ``layer``. Layers count from 0."""

    stack: str
    layer: int
    site: str
    point: str
    norm: float


def loss_of(model: Any, batch: Batch) -> Tensor:
    """Label-smoothed cross-entropy of ``batch``, natural log, mean over its tokens; plain with an adaptive softmax."""
    pad, target = model.decoder.padding_idx, batch.target.flatten()
    if (softmax := model.decoder.adaptive_softmax) is not None:
        # The log-probabilities of all words, which it computes in place, have no gradient.
        kept = target.ne(pad)
        bands = zip(*softmax(model(*batch.inputs)[0].flatten(0, 1)[kept], target[kept]), strict=True)
        losses = [cross_entropy(x, own, reduction="sum") for x, own in bands if own is not None]
        return torch.stack(losses).sum() / kept.sum()
    sample = {"target": batch.target}
    log_probabilities = model.get_normalized_probs(model(*batch.inputs), log_probs=True, sample=sample)
    return cross_entropy(log_probabilities.flatten(0, 1), target, ignore_index=pad, label_smoothing=LABEL_SMOOTHING)


def watched_backward(model: Any, batch: Batch) -> tuple[dict[Key, float], dict[tuple[str, int, str], float]]:
    """Run passes in training mode, with the model's dropout; the gradients of the parameters stay in the model.

    Returns:
        The norm of the gradient at every point, and of every sub-layer the variance of its ``total`` without pads.
    """
    model.train()
    model.zero_grad()
    squares: dict[Key, float] = {}
    moments: dict[tuple[str, int, str], Tensor] = {}

    def add(key: Key, gradient: Tensor) -> None:
        squares[key] += float(gradient.norm()) ** 2

    pad = model.decoder.padding_idx
    words = int(batch.target.ne(pad).sum())
    # Sentences do not interact in a pass, so the squared norm over a batch is the sum of those over its parts.
    sentences = max(1, TOKENS_AT_ONCE // max(batch.source.size(1), batch.target.size(1)))
    for part in map(Batch._make, zip(*(tensor.split(sentences) for tensor in batch), strict=True)):
        with recording(model) as record:
            loss = loss_of(model, part) * (int(part.target.ne(pad).sum()) / words)
        for visit in record.visits:
            place = (visit.sub.stack, visit.sub.number, visit.sub.site.value)
            values = visit.total[part.words(visit.sub.stack, pad, visit.total)].detach().double()
            sums = torch.stack([values.sum(), values.square().sum(), values.new_tensor(values.numel())])
            moments[place] = moments.get(place, torch.zeros(3).double()) + sums
        inside = (
            ((visit.sub.stack, visit.sub.number, visit.sub.site.value, point), getattr(visit, point))
            for visit, point in product(record.visits, POINTS)
        )
        layers = (((*at, LAYER, "output"), tensor) for at, output in record.layer_outputs.items() for tensor in output)
        for key, tensor in chain(inside, layers):
            if tensor is not None and tensor.requires_grad:
                squares.setdefault(key, 0.0)
                tensor.register_hook(partial(add, key))
        loss.backward()
    model.eval()
    variances = {}
    for place, sums in moments.items():
        total, square, count = sums.tolist()
        variances[place] = square / count - (total / count) ** 2
    return {key: square**0.5 for key, square in squares.items()}, variances


def gradient_norms(model: Any, batch: Batch) -> list[Point]:
    """Return every point of the model, the encoder's first, from the bottom up.

    A layer has another row with the point ``output`` and one with ``parameters``, over all its trained parameters.
    """
    norms, _ = watched_backward(model, batch)
    points: list[Point] = []
    for sub in sub_layers(model):
        keys = [(sub.stack, sub.number, sub.site.value, point) for point in POINTS]
        points += [Point(*key, norms[key]) for key in keys if key in norms]
    for name, stack in model.stacks():
        for number, layer in enumerate(stack.layers.children()):
            points.append(Point(name, number, LAYER, "output", norms.get((name, number, LAYER, "output"), 0.0)))
            squares = [float(p.grad.norm()) ** 2 for p in layer.parameters() if p.grad is not None]
            points.append(Point(name, number, LAYER, "parameters", sum(squares) ** 0.5))
    return points


def norms_of(points: Sequence[Point], stack: str, layers: bool = True, point: str = "output") -> list[float]:
    """Return the norms at one point of the layers, or of the sub-layers, of a stack, bottom to top."""
    return [p.norm for p in points if p.stack == stack and (p.site == LAYER) == layers and p.point == point]


def run_gradient_norm(subjects: Sequence[Subject], settings: AnalysisSettings) -> AnalysisResult:
    """Measure the points of each model; norms relative to its largest sub-layer and to its top decoder layer."""
    by_label: dict[str, list[Point]] = results.each(subjects, settings, gradient_norms)
    rows: results.Table = [("model", *Point._fields, "relative_to_largest", "relative_to_top")]
    shown: list[Sequence[Any]] = []
    units: dict[str, dict[str, float]] = {}
    for label, points in by_label.items():
        largest = {at: max(p.norm for p in points if p.point == at) or 1.0 for at in ("output", "parameters")}
        top = norms_of(points, points[-1].stack)[-1] or 1.0
        units[label] = {**largest, "top": top}
        for point in points:
            kind, by_top = ("output", point.norm / top) if point.point != "parameters" else ("parameters", None)
            rows.append((label, *point, point.norm / largest[kind], by_top))
        for at, unit in (("output", top), ("parameters", largest["parameters"])):
            of_layers = [norms_of(points, stack, point=at) for stack in STACKS]
            ends = [own[end] / unit if own else None for own in of_layers for end in (0, -1)]
            shown.append((label, at, *ends, results.ratio(*ends[-2:])))
    panels: list[Panel] = []
    for what, x_label, by, name, layers, at in (
        ("sub-layer outputs", results.BY_SUB_LAYER, "output", "largest", False, "output"),
        ("layer outputs", results.BY_LAYER, "top", "top decoder layer's", True, "output"),
        ("parameters of a layer", results.BY_LAYER, "parameters", "largest", True, "parameters"),
    ):
        for stack in STACKS:
            lines = [
                results.numbered(label, [norm / units[label][by] for norm in norms_of(points, stack, layers, at)])
                for label, points in by_label.items()
            ]
            panels.append(Lines(f"{stack}: {what}", x_label, f"gradient norm / {name}", lines, log_y=True))
    figures = [
        Figure("", "Gradient norms", panels, share_y="row"),
        Figure("-points", "Gradient norms inside a decoder layer", _point_panels(by_label, units), 3, 4.0, "row"),
    ]
    header = ("model", "of", "encoder bottom", "encoder top", "decoder bottom", "decoder top", "bottom / top")
    return AnalysisResult({"": rows}, figures, header, shown)


def _point_panels(by_label: Mapping[str, Sequence[Point]], units: Mapping[str, Mapping[str, float]]) -> list[Panel]:
    """Follow the stream of the bottom, the middle and the top layer of the decoder; models may differ in depth."""
    panels: list[Panel] = []
    for name, part in (("bottom", 0.0), ("middle", 0.5), ("top", 1.0)):
        paths = {}
        for label, points in by_label.items():
            number = int(part * max(p.layer for p in points if p.stack == "decoder"))
            inside = [p for p in points if (p.stack, p.layer) == ("decoder", number) and p.site != LAYER]
            # The input of the layer, then each sum and the point after it.
            path = {"layer input": next(p.norm for p in inside if p.point == "stream")}
            for p in inside:
                if p.point in ("total", "output"):
                    path[f"{p.site} {p.point.replace('total', 'sum')}"] = p.norm
            paths[label] = {tick: norm / units[label]["top"] for tick, norm in path.items()}
        ticks = max((list(path) for path in paths.values()), key=len)
        lines = [
            Line(label, [(place, path[tick]) for place, tick in enumerate(ticks, start=1) if tick in path])
            for label, path in paths.items()
        ]
        x_label, y_label = "point, from the bottom", "gradient norm / top decoder layer's"
        panels.append(Lines(f"decoder, {name} layer", x_label, y_label, lines, log_y=True, x_ticks=ticks))
    return panels


ANALYSIS = Analysis(
    "gradient-norm",
    "gradient norms of layers, sub-layers, points around each norm, parameters",
    "Admin Fig. 3, B2T Fig. 3, 4, 7, DS-Init Fig. 1",
    run_gradient_norm,
)
