"""How alike the layers' outputs are: Takase et al., Findings of ACL 2023, figure 5.

Cosine similarity between the outputs of two layers at the same word, mean over the words. Dropout is off. Outputs that
are all alike leave the upper layers nothing to do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fairseq_plugins.diagnostics.batches import Batch
from fairseq_plugins.diagnostics.observation import recording


def similarity(model: Any, batch: Batch) -> dict[str, Tensor]:
    """Of each stack, ``(L, L)``: row and column 0 are the lowest layer."""
    model.eval()
    with torch.no_grad(), recording(model) as record:
        model(*batch.inputs, features_only=True)
    result = {}
    for name, stack in model.stacks():
        words = batch.words(name, stack.padding_idx)
        outputs = [record.layer_outputs[name, layer][words] for layer in range(len(stack.layers))]
        result[name] = cosines(torch.stack(outputs))
    return result


def cosines(outputs: Tensor) -> Tensor:
    """From the layers' outputs ``(L, words, C)`` to ``(L, L)``."""
    directions = normalize(outputs.double(), dim=-1)
    return torch.einsum("iwc,jwc->ij", directions, directions) / outputs.size(1)
