"""Promises of methods in the other families: language models, and models for speech."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fairseq_plugins.core.designed import DesignedModel
from fairseq_plugins.core.language_model import DeepTransformerLanguageModel
from fairseq_plugins.core.speech_to_text import DeepS2TTransformerModel
from tests.models import methods_of, perturb, speech, text, tiny

FAMILIES: dict[type[DesignedModel], Callable[[], tuple[Tensor, ...]]] = {
    DeepTransformerLanguageModel: lambda: (text()[0][:2],),
    DeepS2TTransformerModel: lambda: (*speech()[:2], speech().previous[:, :4]),
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
        model(*given)  # methods with a profile see their data
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
