"""Singular values of the input-output Jacobian: Bachlechner et al., UAI 2021, figure 5.

All outputs of the encoder, or of a language model below its projection, by all its inputs: n C by n C for n words of
width C. Values near 1: a signal passes unchanged (dynamical isometry); near 0: directions are lost. Dropout is off.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.core.method import Stack
from fairseq_plugins.errors import UserError
from fairseq_plugins.tools.observe.diagnostics.batches import Batch
from fairseq_plugins.tools.observe.diagnostics.models import Subject
from fairseq_plugins.tools.observe.diagnostics.observation import recording
from fairseq_plugins.tools.observe.diagnostics.results import Analysis, AnalysisResult, AnalysisSettings, Table, each
from fairseq_plugins.tools.plots import Figure, Line, Lines, Panel

LARGEST = 4096
"""Maximum number of rows of a Jacobian: 64 MiB and a minute or two on one core."""
ROWS_AT_ONCE = 64
LEAST_SINGULAR, BINS = 1e-6, 60
"""Smaller singular values count as this one, and the number of bins of the histogram."""


def jacobian(model: Any, batch: Batch) -> Tensor:
    """Return the Jacobian of the first stack's output, top norm included, by its embedded first sentence: ``(nC, nC)``.

    Raises UserError: it would take too long; the message has the possible number of words.
    """
    name, stack = model.stacks()[0]
    tokens = batch.inputs[0][:1]
    if tokens.dim() == 2:
        tokens = tokens[:, tokens[0].ne(stack.padding_idx)]
    with recording(model) as record:
        if name == Stack.ENCODER.value:
            (output,) = stack(tokens, batch.lengths[:1])["encoder_out"]
        else:
            output, _ = stack(tokens, features_only=True)
    words, _, width = record.bottoms[name].shape
    if words * width > LARGEST:
        raise UserError(
            f"jacobian: {words} words of width {width} make a matrix of {words * width} rows, "
            f"more than {LARGEST}; possible with this width: --length {LARGEST // width}"
        )
    # torch.func cannot be used: methods have autograd functions of their own.
    rows = torch.eye(output.numel(), dtype=output.dtype).view(-1, *output.shape).split(ROWS_AT_ONCE)
    by, settings = record.bottoms[name], {"retain_graph": True, "is_grads_batched": True}
    products = [torch.autograd.grad(output, by, some, **settings)[0] for some in rows]
    return torch.cat(products).reshape(output.numel(), by.numel())


def run_jacobian(subjects: Sequence[Subject], settings: AnalysisSettings) -> AnalysisResult:
    """Histograms of log10 of the singular values."""
    by_label = each(subjects, settings, lambda model, batch: torch.linalg.svdvals(jacobian(model, batch)))
    table: Table = [("model", "number", "singular_value")]
    table += [(label, i, v) for label, values in by_label.items() for i, v in enumerate(values.tolist(), start=1)]
    logs = {label: values.double().clamp(min=LEAST_SINGULAR).log10() for label, values in by_label.items()}
    low, high = min(float(v.min()) for v in logs.values()) - 0.1, max(float(v.max()) for v in logs.values()) + 0.1
    middles = torch.linspace(low, high, 2 * BINS + 1)[1::2].tolist()
    panels: list[Panel] = []
    for label, values in logs.items():
        shares = (torch.histc(values, bins=BINS, min=low, max=high) / len(values)).tolist()
        line = Line("", list(zip(middles, shares, strict=True)))
        panels.append(Lines(label, "log10 of a singular value", "share of the values", [line]))
    header = ("model", "largest", "median", "smallest", "root mean square", "share in 0.5 to 2")
    shown: list[Sequence[Any]] = []
    for label, v in by_label.items():
        near = float(((v >= 0.5) & (v <= 2)).double().mean())
        shown.append((label, float(v[0]), float(v.median()), float(v[-1]), float(v.square().mean().sqrt()), near))
    figure = Figure("", "Input-output Jacobian", panels, columns=3, width=3.4, share_y="all")
    return AnalysisResult({"": table}, [figure], header, shown)


ANALYSIS = Analysis(
    "jacobian",
    "singular values of the input-output Jacobian of the encoder or language model",
    "ReZero Fig. 5",
    run_jacobian,
    sentences=1,
    length=8,
)
