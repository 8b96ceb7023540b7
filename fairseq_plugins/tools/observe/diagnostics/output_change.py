"""Change of the output of an encoder or language model when its weights change: Liu et al., EMNLP 2020, figure 4.

A random change of every matrix in the layers moves the output of a Post-LN encoder of N layers by O(N), that of a
Pre-LN or Admin encoder by O(log N). The output is measured after a LayerNorm: Pre-LN's raw stream grows with N and so
does its change. Every output is therefore normalised to mean 0 and variance 1 over the width.

A change is the squared L2 norm of the difference over the whole batch. Dropout is off; embeddings do not change.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from fairseq_plugins.errors import UserError, unknown_name
from fairseq_plugins.options import at_least
from fairseq_plugins.tools.observe.diagnostics import results
from fairseq_plugins.tools.observe.diagnostics.batches import Batch
from fairseq_plugins.tools.observe.diagnostics.gradients import loss_of
from fairseq_plugins.tools.observe.diagnostics.models import NO_DROPOUT, Subject, depends_on_depth
from fairseq_plugins.tools.observe.diagnostics.observation import finished, recording
from fairseq_plugins.tools.observe.diagnostics.results import Analysis, AnalysisResult, AnalysisSettings
from fairseq_plugins.tools.plots import Figure, Line, Lines, Panel

RANDOM_SIZE, ADAM_SIZE = 1e-4, 1e-6
"""Change of each weight, as in the authors' code."""
COARSE = (1, 2, 3, 6, 12, 18, 25, 35, 50, 70, 100)
"""Depths of models if the lower layers of a deep one are not a shallow model, and for steps of Adam."""

UpdateStep = Callable[[Any, Batch, torch.Generator], dict[str, Tensor]]


class Change(NamedTuple):
    """Change of the output of a stack of ``depth`` layers, mean and standard deviation over the models drawn."""

    depth: int
    mean: float
    deviation: float


def matrices(model: Any) -> dict[str, Tensor]:
    """Return the weights of the first stack's layers that are matrices."""
    return {name: p for name, p in model.stacks()[0][1].layers.named_parameters() if p.dim() == 2}


def random_step(model: Any, batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
    """Move every weight by :data:`RANDOM_SIZE`, up or down at random."""
    moves = {}
    for name, p in matrices(model).items():
        up = torch.randint(0, 2, p.shape, generator=generator, dtype=torch.int8).float()
        moves[name] = (2 * RANDOM_SIZE) * up - RANDOM_SIZE
    return moves


def adam_step(model: Any, batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
    """Take Adam's first step at the learning rate :data:`ADAM_SIZE`: against the sign of the gradient."""
    weights = matrices(model)
    gradients = torch.autograd.grad(loss_of(model, batch), list(weights.values()), allow_unused=True)
    pairs = zip(weights, gradients, strict=True)
    return {name: -ADAM_SIZE * gradient.sign() for name, gradient in pairs if gradient is not None}


STEPS: dict[str, UpdateStep] = {"random": random_step, "adam": adam_step}


def outputs(model: Any, batch: Batch) -> list[Tensor]:
    """Return the normalised output after each layer of the first stack, without pads, in float64: ``(words, C)``."""
    name, stack = model.stacks()[0]
    with torch.no_grad(), recording(model) as record:
        stack(*batch.inputs[:2])
    extras = (record.layer_outputs[name, layer][1:] for layer in range(len(stack.layers)))
    streams = [finished(stack, x, *extra) for x, extra in zip(record.mixtures[name][1:], extras, strict=True)]
    kept = [x[batch.words(name, stack.padding_idx, x)].double() for x in streams]
    return [layer_norm(x, x.shape[-1:], eps=1e-12) for x in kept]


def changes(model: Any, batch: Batch, step: UpdateStep, seed: int) -> list[float]:
    """Return the change of the output after each layer of ``model``, which keeps the changed weights."""
    before = outputs(model, batch)
    moves = step(model, batch, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for name, matrix in matrices(model).items():
            if name in moves:
                matrix.add_(moves[name])
    return [float((new - old).square().sum()) for new, old in zip(outputs(model, batch), before, strict=True)]


def curve(subject: Subject, batch: Batch, step: str, deepest: int, models: int, first: int = 1) -> list[Change]:
    """Return the change by depth, 1 to ``deepest``, over ``models`` seeds from ``first`` on.

    A random change uses one deep encoder for all depths if its layers do not depend on those above. Otherwise a model
    is built for each of some depths, its decoder as deep as its encoder. A trained model, which has one depth, is
    refused with a step of Adam.
    """
    trained = subject.weights is not None
    if trained and step != "random":
        raise UserError(
            f"output-change: {subject.label} is trained; --step {step} needs methods, which it builds from scratch"
        )
    by_depth: dict[int, list[float]] = {}
    one_model = step == "random" and (trained or not depends_on_depth(subject))
    for seed in range(first, first + models):
        if one_model:
            sizes = {} if trained else {**dict.fromkeys(subject.depths, 1), subject.depths[0]: deepest}
            model = subject.ready(batch, seed, **sizes, **NO_DROPOUT)
            changed = dict(enumerate(changes(model, batch, STEPS[step], seed), start=1))
        else:
            changed = {}
            for depth in [depth for depth in COARSE if depth < deepest] + [deepest]:
                model = subject.ready(batch, seed, **dict.fromkeys(subject.depths, depth), **NO_DROPOUT)
                changed[depth] = changes(model, batch, STEPS[step], seed)[-1]
        for depth, change in changed.items():
            by_depth.setdefault(depth, []).append(change)
    return [Change(depth, statistics.fmean(values), statistics.pstdev(values)) for depth, values in by_depth.items()]


def law(points: Sequence[Change]) -> list[float | None]:
    """Return R^2 of straight lines through the curve, against N and against log N; None if the curve is flat."""
    fits: list[float | None] = []
    depths = [float(point.depth) for point in points]
    for x in (depths, list(map(math.log, depths))):
        try:
            fits.append(statistics.correlation(x, [point.mean for point in points]) ** 2)
        except statistics.StatisticsError:
            fits.append(None)
    return fits


def run_output_change(
    subjects: Sequence[Subject], settings: AnalysisSettings, step: str, deepest: int, models: int
) -> AnalysisResult:
    """Measure the curve of each model and the two laws."""
    if step not in STEPS:
        raise UserError(unknown_name("step", step, STEPS))
    by_label: dict[str, list[Change]] = {}
    for subject in subjects:
        results.progress(subject.label)
        by_label[subject.label] = curve(subject, settings.batch(subject), step, deepest, models, settings.seed)
    lines = [Line(label, [(point.depth, point.mean) for point in points]) for label, points in by_label.items()]
    axes = ("layers N", "squared change of the output", lines)
    panels: list[Panel] = [
        Lines("a line here: O(N)", *axes),
        Lines("a line here: O(log N)", *axes, log_x=True),
        Lines("both axes logarithmic", *axes, log_x=True, log_y=True),
    ]
    title = f"Output change, {step} step, mean of {models} model{'s' * (models > 1)}"
    figure = Figure(f"-{step}", title, panels, columns=3, width=4.0)
    header = ("model", "N = 1", "N = 10", "deepest", "there", "R^2 with N", "R^2 with log N")
    rows = []
    for label, points in by_label.items():
        by_depth, top = {point.depth: point.mean for point in points}, points[-1]
        rows.append((label, points[0].mean, by_depth.get(10), f"N = {top.depth}", top.mean, *law(points)))
    return AnalysisResult({f"-{step}": results.of_records(by_label)}, [figure], header, rows)


ANALYSIS = Analysis(
    "output-change",
    "how much the output moves when the weights do, by depth",
    "Admin Fig. 4",
    run_output_change,
    sentences=4,
    length=12,
    options={
        "step": {"default": "random", "metavar": "STEP", "help": f"what changes the weights: {' or '.join(STEPS)}"},
        "deepest": {"default": 100, "type": at_least(1), "metavar": "N", "help": "greatest depth"},
        "models": {"default": 8, "type": at_least(1), "metavar": "N", "help": "number of models to average over"},
    },
)
