"""Effect of a residual block on the gradient: Zhang et al., EMNLP 2019, Table 1.

A block takes z, sums r = z + F(z) and returns o = LN(r). Its backward pass has two steps, and the ratios of norms show
the effect of each on the gradient: beta_LN = |dr| / |do| (the LayerNorm), beta_RC = |dz| / |dr| (the residual
connection), beta their product; below 1 it shrinks. Var(r) is over all elements but those of pads. Norms
are Frobenius norms over the whole tensor.

dz counts every path from z, including further connections of the method; a decoder's input from the encoder is not a z.
"""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from fairseq_plugins.core.norm import NormPlace
from fairseq_plugins.core.sub_layers import sub_layers
from fairseq_plugins.tools.observe.diagnostics import results
from fairseq_plugins.tools.observe.diagnostics.batches import Batch
from fairseq_plugins.tools.observe.diagnostics.gradients import watched_backward
from fairseq_plugins.tools.observe.diagnostics.models import Subject
from fairseq_plugins.tools.observe.diagnostics.results import Analysis, AnalysisResult, AnalysisSettings
from fairseq_plugins.tools.plots import Figure, Line, Lines, Panel


class Block(NamedTuple):
    """One block, or the mean over the layers of a stack if ``layer`` is None; layers count from 0.

    ``beta_ln`` is None if there is no norm after the sum; a tensor without gradient has no ratio.
    """

    stack: str
    layer: int | None
    site: str
    beta_ln: float | None
    beta_rc: float | None
    beta: float | None
    variance: float | None


def blocks(model: Any, batch: Batch) -> list[Block]:
    """Measure every block of the model in training mode, the encoder's first."""
    norms, variances = watched_backward(model, batch)
    measured = []
    for sub in sub_layers(model):
        key = (sub.stack, sub.number, sub.site.value)
        stream, total, output = (norms.get((*key, point)) for point in ("stream", "total", "output"))
        # If no norm follows the sum, sum and output are one tensor.
        beta_ln = results.ratio(total, output) if NormPlace.AFTER in sub.norms else None
        beta_rc = results.ratio(stream, total)
        beta = beta_rc if beta_ln is None or beta_rc is None else beta_ln * beta_rc
        measured.append(Block(*key, beta_ln, beta_rc, beta, variances[key]))
    return measured


def kinds(measured: list[Block]) -> list[Block]:
    """Return the rows of Table 1: means over the layers for each kind of sub-layer, in the order in which they run."""
    rows = []
    for stack, site in dict.fromkeys((block.stack, block.site) for block in measured):
        members = [block for block in measured if (block.stack, block.site) == (stack, site)]
        known = [[value for value in column if value is not None] for column in list(zip(*members, strict=True))[3:]]
        rows.append(Block(stack, None, site, *(statistics.fmean(values) if values else None for values in known)))
    return rows


def run_gradient_ratios(subjects: Sequence[Subject], settings: AnalysisSettings) -> AnalysisResult:
    """Measure every block, and the means of Table 1."""
    by_label = results.each(subjects, settings, blocks)
    means = {label: {f"{row.stack} {row.site}": row for row in kinds(rows)} for label, rows in by_label.items()}
    names = list(dict.fromkeys(name for rows in means.values() for name in rows))
    panels: list[Panel] = []
    for column, title, y_label, base in (
        ("beta_ln", "LayerNorm", "|dr| / |do|", 1.0),
        ("beta_rc", "residual connection", "|dz| / |dr|", 1.0),
        ("beta", "block", "|dz| / |do|", 1.0),
        ("variance", "sum", "Var(r)", 0.0),
    ):
        columns = {label: [getattr(rows.get(name), column, None) for name in names] for label, rows in means.items()}
        lines = [results.numbered(label, values) for label, values in columns.items()]
        if any(line.points for line in lines):
            unchanged = Line("", [(1, base), (len(names), base)], guide=True)
            panels.append(Lines(title, "", y_label, [*lines, unchanged], x_ticks=names))
    table = results.of_records({label: [*rows, *means[label].values()] for label, rows in by_label.items()})
    header = ("model", "sub-layer", "beta_LN", "beta_RC", "beta", "Var(r)")
    shown = [(label, name, *row[3:]) for label, rows in means.items() for name, row in rows.items()]
    figure = Figure("", "Gradient ratios of residual blocks", panels)
    return AnalysisResult({"": table}, [figure], header, shown)


ANALYSIS = Analysis(
    "gradient-ratios",
    "what LayerNorm and residual connection do to the gradient; variance of the sum",
    "DS-Init Table 1",
    run_gradient_ratios,
)
