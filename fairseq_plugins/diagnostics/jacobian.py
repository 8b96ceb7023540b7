"""Singular values of the encoder's input-output Jacobian: Bachlechner et al., UAI 2021, figure 5.

All outputs of the encoder by all its inputs, every position with every other: n C by n C for n words of width C. Values
near 1 mean that a signal passes unchanged (dynamical isometry), values near 0 that directions are lost. Dropout is off.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.diagnostics.batches import Batch
from fairseq_plugins.errors import UserError

LARGEST = 4096
"""Rows of the largest Jacobian that is taken: 64 MiB and a minute or two on one core."""
ROWS_AT_ONCE = 64


def require_size(words: int, width: int) -> None:
    """Refuse a Jacobian that takes too long.

    Raises:
        UserError: with the number of words that is possible.
    """
    if words * width <= LARGEST:
        return
    possible = LARGEST // width
    advice = f"at width {width} up to {possible} words are possible: --length {possible}"
    if possible < 1:
        advice = f"the width can be at most {LARGEST}"
    raise UserError(
        f"jacobian: {words} words of width {width} make a matrix of {words * width} rows, more than {LARGEST}; {advice}"
    )


def jacobian(model: Any, batch: Batch) -> Tensor:
    """Of the encoder's output, what stands on top included, by its embedded input, first sentence: ``(nC, nC)``.

    Raises:
        UserError: it would be too large.
    """
    encoder, source = model.encoder.eval(), batch.source[:1]
    source = source[:, source[0].ne(encoder.padding_idx)]
    require_size(source.size(1), encoder.design.width)
    with torch.no_grad():
        start = encoder.forward_embedding(source)[0].transpose(0, 1)
    return of_function(lambda x: encoder.run_layers(x, None, [], False), start)


def of_function(function: Any, start: Tensor) -> Tensor:
    """Jacobian of ``function`` at ``start``, both flattened, some rows at a time."""
    x = start.detach().requires_grad_()
    y = function(x)
    size = y.numel()
    rows = []
    for first in range(0, size, ROWS_AT_ONCE):
        some = torch.zeros(min(ROWS_AT_ONCE, size - first), size, dtype=y.dtype)
        some[torch.arange(len(some)), first + torch.arange(len(some))] = 1.0
        (products,) = torch.autograd.grad(
            y, x, some.view(len(some), *y.shape), retain_graph=True, is_grads_batched=True
        )
        rows.append(products.reshape(len(some), -1))
    return torch.cat(rows)


def singular_values(matrix: Tensor) -> Tensor:
    """Largest first."""
    return torch.linalg.svdvals(matrix)
