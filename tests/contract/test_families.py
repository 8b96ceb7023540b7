"""What methods promise in the other families, too: language models, and models for speech."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fairseq_plugins.core.designed import DesignedModel
from fairseq_plugins.core.language_model import DeepTransformerLanguageModel
from fairseq_plugins.core.speech_to_text import DeepS2TTransformerModel
from tests.faults.exact import differences
from tests.language_model import text
from tests.models import methods_of, perturb, speech, tiny, tokens
from tests.speech_to_text import audio

FAMILIES: dict[type[DesignedModel], Callable[[], tuple[Tensor, ...]]] = {
    DeepTransformerLanguageModel: lambda: (tokens()[:2],),
    DeepS2TTransformerModel: lambda: (*speech()[:2], speech()[2][:, :4]),
}
"""Inputs of each, whose targets have no pads."""
every_family = pytest.mark.parametrize("family", FAMILIES)


@every_family
def test_incremental_equals_full(family: type[DesignedModel]) -> None:
    """For every method that the family can have."""
    given, wrong = FAMILIES[family](), []
    previous = given[-1]
    for method in methods_of(family):
        model = tiny(method + family.family.suffix).train()
        model(*given)  # what has to see data sees it
        perturb(model)
        with torch.no_grad():
            full = model.eval()(*given)[0]
            encoded = model.encoder(*given[:-1]) if len(given) > 1 else None
            cache: dict[str, dict[str, Tensor | None]] = {}
            prefixes = [previous[:, :length] for length in range(1, previous.size(1) + 1)]
            steps = [
                model.decoder(prefix, encoder_out=encoded, incremental_state=cache)[0][:, -1] for prefix in prefixes
            ]
        same = torch.allclose(torch.stack(steps, dim=1), full, atol=1e-5)
        varied = not torch.allclose(full[:, 1], full[:, 2], atol=1e-2)
        wrong += [] if same and varied else [method]
    assert wrong == []


@every_family
def test_calibration_sees_the_first_batch(family: type[DesignedModel]) -> None:
    """omega_1 = 1, omega_2^2 = Var(x_0) + Var(F_1): Admin's rule, from the input of the lowest layer on."""
    model, seen = tiny(f"admin{family.family.suffix}", dropout=0.0).train(), {}
    layer = model.stacks()[0][1].layers[0]
    handle = layer.self_attn_residual.register_forward_pre_hook(lambda _, inputs: seen.update(f=inputs[0], x=inputs[1]))
    model(*FAMILIES[family]())
    handle.remove()
    expected = math.sqrt(float(seen["x"].var(correction=0) + seen["f"].var(correction=0)))
    assert layer.self_attn_residual.omega_profiled.unique().tolist() == [1.0]
    assert layer.ffn_residual.omega_profiled.unique().tolist() == [pytest.approx(expected, rel=1e-5)]


@pytest.mark.slow
@every_family
def test_a_resumed_training_is_the_uninterrupted_one(
    family: type[DesignedModel], characters: Path, speech_data: Path, tmp_path: Path
) -> None:
    """Across the end of an epoch; what has seen data does not look at the first batch after the break."""
    language_model = family is DeepTransformerLanguageModel
    data, train = (characters, text.train) if language_model else (speech_data, audio.train)
    states = []
    for name, stops in (("once", ("6",)), ("twice", ("3", "6"))):
        for updates in stops:
            path = train(data, tmp_path / name, f"admin{family.family.suffix}", "--max-update", updates)
        states.append(torch.load(path, weights_only=True)["model"])
    assert [name for name in differences(*states) if not name.endswith("_float_tensor")] == []
    assert {float(value) for name, value in states[0].items() if name.endswith(".calibrated")} == {1.0}
