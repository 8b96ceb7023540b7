"""Similarity of the layers' outputs: Takase et al., Findings of ACL 2023, figure 5.

Cosine similarity between the outputs of two layers at the same word, mean over the words. Dropout is off. If all
outputs are alike, the upper layers do nothing.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fairseq_plugins.tools.observe.diagnostics import results
from fairseq_plugins.tools.observe.diagnostics.batches import Batch
from fairseq_plugins.tools.observe.diagnostics.models import Subject
from fairseq_plugins.tools.observe.diagnostics.observation import finished, recording
from fairseq_plugins.tools.observe.diagnostics.results import Analysis, AnalysisResult, AnalysisSettings
from fairseq_plugins.tools.plots import Figure, HeatMap, Panel


def similarity(model: Any, batch: Batch) -> dict[str, Tensor]:
    """Return the similarity of each stack, ``(L, L)``: row and column 0 are the lowest layer."""
    with torch.no_grad(), recording(model) as record:
        model.run_stacks(*batch.inputs)
    result = {}
    for name, stack in model.stacks():
        words = batch.words(name, stack.padding_idx, record.bottoms[name])
        outputs = [finished(stack, *record.layer_outputs[name, layer])[words] for layer in range(len(stack.layers))]
        result[name] = cosines(torch.stack(outputs))
    return result


def cosines(outputs: Tensor) -> Tensor:
    """Return the mean cosines of the layers' outputs, ``(L, words, C)`` to ``(L, L)``."""
    directions = normalize(outputs.double(), dim=-1)
    return torch.einsum("iwc,jwc->ij", directions, directions) / outputs.size(1)


def run_similarity(subjects: Sequence[Subject], settings: AnalysisSettings) -> AnalysisResult:
    """Heat maps of cosines."""
    by_label = results.each(subjects, settings, similarity)
    matrices = [(label, *item) for label, stacks in by_label.items() for item in stacks.items()]
    least = min(float(matrix.min()) for *_, matrix in matrices)
    panels: list[Panel] = []
    rows: list[Sequence[Any]] = []
    for label, stack, matrix in matrices:
        axes = (results.BY_LAYER, results.BY_LAYER, "cosine similarity")
        panels.append(HeatMap(f"{label}, {stack}", *axes, matrix.tolist(), 1, (least, 1.0)))
        neighbours = matrix.diagonal(1)
        rows.append((label, stack, float(neighbours.mean()) if len(neighbours) else None, float(matrix[0, -1])))
    table = results.of_matrices(("layer", "other", "cosine"), by_label, first=(0, 0))
    header = ("model", "stack", "neighbours, mean", "bottom and top")
    return AnalysisResult({"": table}, [Figure("", "Similarity of layer outputs", panels)], header, rows)


ANALYSIS = Analysis("similarity", "cosine similarity between layer outputs", "B2T Fig. 5", run_similarity)
