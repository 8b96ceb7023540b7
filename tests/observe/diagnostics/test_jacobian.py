"""The Jacobian of what has a closed form, and the size that is possible."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fairseq_plugins.observe.diagnostics.batches import Batch
from fairseq_plugins.observe.diagnostics.jacobian import jacobian, of_function
from tests.observe.diagnostics.measured import batch, padded, subject


@given(st.integers(1, 4), st.integers(1, 80))
def test_a_linear_stack_has_the_product_of_its_matrices(layers: int, size: int) -> None:
    maps = [torch.eye(size).double() + torch.randn(size, size).double() / size for _ in range(layers)]

    def stack(x: torch.Tensor) -> torch.Tensor:
        for matrix in maps:
            x = x @ matrix.t()
        return x

    product = torch.linalg.multi_dot([*maps[::-1], torch.eye(size).double()])
    found = of_function(stack, torch.randn(size).double())
    assert torch.allclose(found, product)


def test_a_layer_norm_keeps_all_directions_but_two() -> None:
    """dLN/dx = (I - 1 1^T/C - x^ x^^T/C) / sigma: C - 2 values of 1 / sigma, and two of zero."""
    x = 3 * torch.randn(1, 40).double()
    sigma = float(x.var(unbiased=False).sqrt())
    found = torch.linalg.svdvals(of_function(nn.LayerNorm(40, eps=1e-12).double(), x))
    assert torch.allclose(found[:-2], torch.full((38,), 1 / sigma).double())
    assert float(found[-2]) < 1e-9


def test_rezero_is_an_isometry_at_the_start() -> None:
    for layers in (1, 12):
        model = subject("rezero", encoder_layers=layers).ready(batch())
        assert torch.equal(jacobian(model, batch()), torch.eye(6 * 16))


def test_the_encoders_jacobian_is_torchs() -> None:
    model = subject("post_ln").ready(batch())
    found = jacobian(model, batch())
    second = Batch(*(part[1:] for part in padded()))
    assert jacobian(model, second).shape == (4 * 16, 4 * 16)  # without pads
    start = model.encoder.forward_embedding(batch().source[:1])[0].transpose(0, 1).detach()
    expected = torch.autograd.functional.jacobian(lambda x: model.encoder.run_layers(x, None, [], False), start)
    assert torch.allclose(found, expected.reshape(96, 96), atol=1e-5)


def test_deep_post_ln_loses_its_singular_values() -> None:
    """ReZero's figure 5: the deeper, the farther from 1."""
    models = (subject("post_ln", encoder_layers=n, base_init="xavier").ready(batch()) for n in (1, 4, 24))
    medians = [float(torch.linalg.svdvals(jacobian(model, batch())).median()) for model in models]
    assert medians[0] > medians[1] > medians[2]
    assert medians[2] < 0.1
