"""The list of analyses. A new one is a file with an ``ANALYSIS`` and its name here."""

from __future__ import annotations

from collections.abc import Mapping

from fairseq_plugins.errors import UserError, unknown_name
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
MODULES = (gradients, blocks, dependency, output_change, jacobian, similarity, scales, updates, timeline)
REGISTRY: tuple[Analysis, ...] = tuple(module.ANALYSIS for module in MODULES)
OF_MODELS = tuple(analysis for analysis in REGISTRY if analysis.of == "models")
BY_NAME: Mapping[str, Analysis] = {analysis.name: analysis for analysis in REGISTRY}


def find(name: str) -> Analysis:
    """Return the analysis called ``name``.

    Raises:
        UserError: there is none; the message has the nearest one.
    """
    if name not in BY_NAME:
        raise UserError(unknown_name("analysis", name, [*BY_NAME, "all"]))
    return BY_NAME[name]
