"""Gradient norms: autograd's own, and the relative values that the papers' figures show."""

import gc
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fairseq_plugins.tools.observe.diagnostics import gradients
from fairseq_plugins.tools.observe.diagnostics.gradients import gradient_norms, loss_of, norms_of
from fairseq_plugins.tools.observe.diagnostics.models import NO_DROPOUT
from fairseq_plugins.tools.observe.recorder.activations import hooked
from tests.observe.diagnostics.measured import batch, padded, subject, wide


@pytest.mark.parametrize("method", ["post_ln", "pre_ln", "b2t", "dlcl", "dsinit_matt", "ode", "pcformer"])
def test_layer_outputs_have_autograds_gradients(method: str) -> None:
    inputs = padded()
    model = subject(method, **NO_DROPOUT).ready(inputs)
    points = gradient_norms(model, inputs)
    found = norms_of(points, "encoder") + norms_of(points, "decoder")
    encoded = model.encoder(inputs.source, inputs.lengths, return_all_hiddens=True)
    out, extra = model.decoder(inputs.previous, encoder_out=encoded)
    loss = F.cross_entropy(out.flatten(0, 1), inputs.target.flatten(), ignore_index=1, label_smoothing=0.1)
    gradients = torch.autograd.grad(loss, encoded["encoder_states"][1:] + extra["inner_states"][1:])
    assert found == pytest.approx([float(gradient.norm()) for gradient in gradients], rel=1e-4)


@pytest.mark.parametrize("method", ["hyper_connections", "resi_dual"])
def test_extra_streams_are_a_part_of_a_layers_output(method: str) -> None:
    inputs = padded()
    model = subject(method, **NO_DROPOUT).ready(inputs)
    found = norms_of(gradient_norms(model, inputs), "encoder")
    seen: list[torch.Tensor] = []

    def see(layer: Any, given: Any, result: Any) -> None:
        seen.extend((result[0], result[-1]))

    with hooked((layer, see) for layer in model.encoder.layers):
        loss = loss_of(model, inputs)
    gradients = torch.autograd.grad(loss, seen, allow_unused=True, materialize_grads=True)
    pairs = zip(gradients[::2], gradients[1::2], strict=True)
    assert found == pytest.approx([math.hypot(float(x.norm()), float(side.norm())) for x, side in pairs], rel=1e-4)
    assert min(found) > 0


def test_parameters_of_a_layer() -> None:
    inputs = padded()
    model = subject("admin", **NO_DROPOUT).ready(inputs)
    points = gradient_norms(model, inputs)
    model.zero_grad()
    loss_of(model, inputs).backward()
    layer = model.encoder.layers[1]
    expected = torch.cat([parameter.grad.flatten() for parameter in layer.parameters()]).norm()
    found = [p.norm for p in points if (p.stack, p.layer, p.point) == ("encoder", 1, "parameters")]
    assert found == pytest.approx([float(expected)], rel=1e-4)


def relative(method: str, words: int, inputs: Any, **settings: Any) -> dict[str, list[float]]:
    """Norms at the layers' outputs by that of the top decoder layer."""
    model = subject(method, words=words, **settings).ready(inputs)
    torch.manual_seed(1)
    points = gradient_norms(model, inputs)
    top = norms_of(points, "decoder")[-1]
    return {stack: [norm / top for norm in norms_of(points, stack)] for stack in ("encoder", "decoder")}


def test_gradients_vanish_in_a_post_ln_decoder_only() -> None:
    """Admin's figure 3 and B2T's figure 3 in small: Post-LN's decoder vanishes, Pre-LN's and B2T's do not."""
    inputs = batch(words=500, sentences=8, length=12)
    sizes = wide(64, 12, dropout=0.1)
    post, pre, b2t = (relative(method, 500, inputs, **sizes) for method in ("post_ln", "pre_ln", "b2t"))
    assert post["decoder"][0] < 0.25
    assert pre["decoder"][0] > 1
    assert b2t["decoder"][0] > 2 * post["decoder"][0]
    # No encoder vanishes: the two ends of Post-LN's are within a factor of 3.
    assert 1 / 3 < post["encoder"][0] / post["encoder"][-1] < 3


LAYERS = (1, 6, 12, 18)
REFERENCE: dict[str, tuple[str, dict[str, Any], list[float], list[float]]] = {
    "Post-LN": ("post_ln", {}, [0.031, 0.072, 0.197, 1], [0.43, 0.30, 0.28, 0.28]),
    "Pre-LN": ("pre_ln", {}, [1.42, 1.15, 1.05, 1], [1.19, 0.73, 0.51, 0.40]),
    "B2T": ("b2t", {}, [0.42, 0.49, 0.66, 1], [0.47, 0.40, 0.34, 0.31]),
    "B2T of 2023": ("b2t", {"b2t_init_scale": "layers"}, [0.85, 0.85, 0.85, 1], [0.018] * 4),
}
"""18L-18L, base size, dropout 0.3, at layers 1, 6, 12 and 18: measured apart from this package."""


@pytest.mark.slow
@pytest.mark.parametrize("name", REFERENCE)
def test_eighteen_layers(name: str) -> None:
    method, settings, decoder, encoder = REFERENCE[name]
    inputs = batch(words=10_000, sentences=16, length=25)
    found = relative(method, 10_000, inputs, **wide(512, 18, dropout=0.3, **settings))
    for stack, expected in (("decoder", decoder), ("encoder", encoder)):
        assert [found[stack][layer - 1] for layer in LAYERS] == pytest.approx(expected, rel=0.2)


def test_parts_of_a_batch_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pads too: each part has its share of the words."""
    inputs = padded()
    for method in ("post_ln", "dlcl_post_ln", "dsinit_matt"):
        model = subject(method, **NO_DROPOUT).ready(inputs)
        monkeypatch.undo()
        whole = gradient_norms(model, inputs)
        monkeypatch.setattr(gradients, "TOKENS_AT_ONCE", 6)
        parts = gradient_norms(model, inputs)
        assert [point[:4] for point in parts] == [point[:4] for point in whole]
        assert [point.norm for point in parts] == pytest.approx([point.norm for point in whole], rel=1e-3, abs=1e-7)


def tensors() -> int:
    """How many there are in this process."""
    return sum(issubclass(type(item), torch.Tensor) for item in gc.get_objects())


def test_no_tensor_outlives_its_pass() -> None:
    """A graph that is kept costs gigabytes at the sizes of the papers."""
    inputs = batch()
    model = subject("post_ln").ready(inputs)
    gc.collect()
    gc.disable()
    try:
        gradient_norms(model, inputs)
        before = tensors()
        gradient_norms(model, inputs)
        assert tensors() == before
    finally:
        gc.enable()
