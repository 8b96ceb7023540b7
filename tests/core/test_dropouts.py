"""Every dropout of a built model has the rate that was asked for it."""

from __future__ import annotations

from typing import Any

import pytest
from fairseq.modules import FairseqDropout

from fairseq_plugins.errors import UserError
from tests.building import tiny

RATES = {"dropout": 0.1, "attention_dropout": 0.2, "activation_dropout": 0.3}


def rates_of(model: Any) -> dict[str, float]:
    """The rate of every dropout, by name."""
    return {name: module.p for name, module in model.named_modules() if isinstance(module, FairseqDropout)}


@pytest.mark.parametrize("embeddings", [{}, {"embedding_dropout": 0.0}, {"embedding_dropout": 0.05}])
@pytest.mark.parametrize(
    "arch", ["dsinit_matt_transformer", "admin_transformer", "rezero_transformer_lm", "pre_ln_s2t_transformer"]
)
def test_embeddings_may_have_a_rate_of_their_own(arch: str, embeddings: dict[str, float]) -> None:
    model = tiny(arch, **RATES, **embeddings)
    expected = {"layers": 0.1, "self_attn": 0.2, "encoder_attn": 0.2, "activation": 0.3}
    expected["embedding"] = embeddings.get("embedding_dropout", 0.1)
    wrong, seen = [], set()
    for name, rate in rates_of(model).items():
        kinds = [kind for kind in ("activation", "encoder_attn", "self_attn", "layers") if kind in name]
        kind = kinds[0] if kinds else "embedding"
        seen.add(kind)
        if rate != expected[kind]:
            wrong.append((name, rate))
    assert wrong == []
    assert {"layers", "activation", "embedding"} <= seen


def test_a_rate_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="--embedding-dropout must be at least 0 and below 1, not 1.0"):
        tiny("admin_transformer", embedding_dropout=1.0)
