"""DenseFormer: weighted averages over the outputs below, which start as the identity."""

from __future__ import annotations

import pytest
import torch

from fairseq_plugins.core.history import mixing_weights
from tests.models import tiny

ARCH = "denseformer_transformer"


@pytest.mark.parametrize(
    ("dilation", "expected"),
    [
        ("1", [[1.0, 0, 0, 0], [4, 5, 0, 0], [8, 9, 10, 0], [12, 13, 14, 15]]),
        ("2", [[1.0, 0, 0, 0], [0, 5, 0, 0], [8, 0, 10, 0], [0, 13, 0, 15]]),
    ],
)
def test_mixing_weights_are_the_rows(dilation: str, expected: list[list[float]]) -> None:
    stack = tiny(ARCH, denseformer_dilation=dilation).encoder
    with torch.no_grad():
        stack.history.weight.copy_(torch.arange(16.0).view(4, 4))
    assert torch.equal(mixing_weights(stack), torch.tensor(expected))
