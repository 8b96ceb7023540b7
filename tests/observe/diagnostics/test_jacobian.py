"""The Jacobian that torch computes, and the singular values of deep Post-LN."""

import pytest
import torch

from fairseq_plugins.tools.observe.diagnostics.batches import Batch
from fairseq_plugins.tools.observe.diagnostics.jacobian import jacobian
from tests.observe.diagnostics.measured import batch, padded, subject


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
