"""The list of analyses. A new one is a file with an ``ANALYSIS`` and its name here."""

from __future__ import annotations

from fairseq_plugins.observe.diagnostics import (
    blocks,
    dependency,
    gradients,
    jacobian,
    output_change,
    scales,
    similarity,
    timeline,
    updates,
)
from fairseq_plugins.observe.diagnostics.results import Analysis

# In the order of --help and of `all`.
MODULES = (gradients, blocks, dependency, output_change, jacobian, similarity, scales, updates)
OF_MODELS: tuple[Analysis, ...] = tuple(module.ANALYSIS for module in MODULES)
OF_TRAININGS = timeline.ANALYSIS
