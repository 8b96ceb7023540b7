"""The Jacobian of what has a closed form, and the size that is possible."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairseq_plugins.tools.observe.diagnostics.batches import Batch
from fairseq_plugins.tools.observe.diagnostics.jacobian import jacobian, of_tensors
from tests.observe.diagnostics.measured import batch, padded, subject


@given(st.integers(1, 4), st.integers(1, 80))
def test_a_linear_stack_has_the_product_of_its_matrices(layers: int, size: int) -> None:
    maps = [torch.eye(size).double() + torch.randn(size, size).double() / size for _ in range(layers)]

    def stack(x: torch.Tensor) -> torch.Tensor:
        for matrix in maps:
            x = x @ matrix.t()
        return x

    product = torch.linalg.multi_dot([*maps[::-1], torch.eye(size).double()])
    x = torch.randn(size).double().requires_grad_()
    found = of_tensors(stack(x), x)
    assert torch.allclose(found, product)


@pytest.mark.parametrize("method", ["post_ln", "attention_residuals", "dlcl", "dyt", "rms_norm", "sigma_reparam"])
def test_the_encoders_jacobian_is_torchs(method: str) -> None:
    model = subject(method).ready(batch())
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
