"""Language models and speech to text: the analyses measure them as autograd does, and their checkpoints."""

from argparse import Namespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fairseq_plugins.checkpoints.fold import made_up_task
from fairseq_plugins.core.stacks import Decoder
from fairseq_plugins.tools.observe.diagnostics.batches import Batch
from fairseq_plugins.tools.observe.diagnostics.command import OF_MODELS, main
from fairseq_plugins.tools.observe.diagnostics.gradients import gradient_norms, loss_of, norms_of
from fairseq_plugins.tools.observe.diagnostics.jacobian import jacobian
from fairseq_plugins.tools.observe.diagnostics.models import NO_DROPOUT, Subject, of_options
from fairseq_plugins.tools.observe.diagnostics.results import AnalysisSettings
from fairseq_plugins.tools.observe.diagnostics.scales import run_scales
from fairseq_plugins.tools.observe.diagnostics.similarity import cosines, similarity
from tests.language_model import text
from tests.models import TINY_LANGUAGE_MODEL, TINY_SPEECH_TO_TEXT
from tests.observe.diagnostics.measured import WORDS, padded, rows
from tests.speech_to_text import audio

SIZES = {"_transformer_lm": TINY_LANGUAGE_MODEL, "_s2t_transformer": TINY_SPEECH_TO_TEXT}


def made(method: str, suffix: str, **settings: Any) -> tuple[Subject, Batch]:
    """A small model of a family and what it reads; the last target has pads."""
    said = Namespace(**{**SIZES[suffix], **NO_DROPOUT, **settings})
    subject = of_options(method + suffix, said, made_up_task(WORDS, WORDS))
    return subject, subject.reads(padded(), seed=1)


@pytest.mark.parametrize("method", ["post_ln", "hyper_connections", "dlcl"])
def test_a_language_models_jacobian_is_torchs(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subject, batch = made(method, "_transformer_lm")
    model = subject.ready(batch)
    tokens = batch.previous[:1]
    start = model.decoder.embed(tokens, None).detach()

    def run(x: torch.Tensor) -> torch.Tensor:
        monkeypatch.setattr(model.decoder, "embed", lambda *_: x)
        features: torch.Tensor = model.decoder(tokens, features_only=True)[0]
        return features

    found = jacobian(model, batch)
    expected = torch.autograd.functional.jacobian(run, start).reshape(96, 96)
    assert torch.allclose(found, expected, atol=1e-5)
    # No word depends on a later one.
    assert not found.view(6, 16, 6, 16).sum(dim=(1, 3)).triu(diagonal=1).any()
    assert found.any()


def test_rezero_starts_as_the_identity_in_every_family() -> None:
    for suffix in SIZES:
        subject, batch = made("rezero", suffix)
        size = 6 * 16
        assert torch.allclose(jacobian(subject.ready(batch), batch), torch.eye(size), atol=1e-6), suffix
    # Names are those of the state dict.
    (note,) = run_scales([subject], AnalysisSettings(lambda _: batch)).notes
    assert "encoder.transformer_layers.0.self_attn" in note


@pytest.mark.parametrize("suffix", SIZES)
def test_gradients_and_similarities_are_those_of_the_layers(suffix: str) -> None:
    subject, batch = made("post_ln", suffix)
    model = subject.ready(batch)
    points, alike = gradient_norms(model, batch), similarity(model, batch)
    keep = {"return_all_hiddens": True}
    encoded = model.encoder(*batch.inputs[:2], **keep) if len(batch.inputs) > 1 else None
    # fairseq's method serves both: the model for speech returns no states.
    x, extra = Decoder.extract_features(model.decoder, batch.previous, encoded)
    out = model.decoder.output_layer(x)
    loss = F.cross_entropy(out.flatten(0, 1), batch.target.flatten(), ignore_index=1, label_smoothing=0.1)
    layers = extra["inner_states"][1:]
    gradients = torch.autograd.grad(loss, layers)
    assert norms_of(points, "decoder") == pytest.approx([float(g.norm()) for g in gradients], rel=1e-4)
    words = batch.previous.ne(1).t()
    assert torch.allclose(alike["decoder"], cosines(torch.stack([x[words] for x in layers])))
    if encoded is not None:
        states = encoded["encoder_states"]
        assert torch.allclose(alike["encoder"], cosines(torch.stack([x.flatten(0, 1) for x in states])))


def test_an_adaptive_softmax_has_the_loss_of_its_words() -> None:
    adaptive = {"adaptive_softmax_cutoff": "10,30", "adaptive_softmax_dropout": 0.0}
    subject, batch = made("post_ln", "_transformer_lm", **adaptive)
    model = subject.ready(batch)
    with torch.no_grad():
        logs = model.get_normalized_probs(model(batch.previous), True, {"target": batch.target}).flatten(0, 1)
    expected = float(F.nll_loss(logs, batch.target.flatten(), ignore_index=1))
    assert float(loss_of(model, batch)) == pytest.approx(expected)


def test_trained_models_of_every_family(characters, speech_data, no_plots, tmp_path, capsys):
    adaptive = ("--adaptive-input", "--adaptive-input-cutoff", "5,10", "--adaptive-softmax-cutoff", "5,10")
    more = (*adaptive, "--criterion", "adaptive_loss", "--ddp-backend", "legacy_ddp", "--max-update", "2")
    lm = text.train(characters, tmp_path / "lm", "admin_transformer_lm", *more)
    s2t = audio.train(speech_data, tmp_path / "s2t", "admin_s2t_transformer", "--max-update", "2")
    for checkpoint, stacks in ((lm, {"decoder"}), (s2t, {"encoder", "decoder"})):
        place = checkpoint.parent / "found"
        argv = ["all", "--checkpoint", str(checkpoint), "--length", "8", "--output", str(place)]
        assert main(argv) == 0, capsys.readouterr().err
        written = {path.stem.removesuffix("-random"): path for path in place.glob("*.csv")}
        assert set(written) - {"scales-others"} == {analysis.name for analysis in OF_MODELS}
        assert {row["stack"] for name in ("scales", "similarity", "updates") for row in rows(written[name])} == stacks
        weights = torch.load(checkpoint, weights_only=False)["model"]
        omega = sum(weights[f"decoder.layers.1.ffn_residual.omega_{part}"] for part in ("profiled", "trained"))
        (ours,) = [r for r in rows(written["scales"]) if (r["stack"], r["layer"], r["site"]) == ("decoder", "1", "ffn")]
        assert float(ours["stream"]) == pytest.approx(float(omega.mean()), rel=1e-6)
    assert main(["scales", "--checkpoint", str(lm), "--data", str(characters), "--output", str(tmp_path / "out")]) == 2
    assert "no binarised corpus (there is no dict.*.txt)" in capsys.readouterr().err
